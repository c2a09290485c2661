"""Score every policy of a run: each environment counted once, deterministic and sampled."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from echelon.algorithms import complete
from echelon.config import TrainConfig
from echelon.config.ranges import COUNT, require
from echelon.envs.contract import Adaptive, Env, Extendable, MakeEnv
from echelon.errors import UserError
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.acting import Actor, Player
from echelon.runs import checkpoint as checkpoints
from echelon.runs.folder import RunFolder
from echelon.tasks import maker
from echelon.training.memory import require_room_for_envs
from echelon.training.resolve import choose_device
from echelon.training.trainer import make_model

Mode = Literal["deterministic", "sampled"]
CHECK_END_EVERY = 16
"""Steps between two checks whether all episodes have ended; each check waits for the device."""


@dataclass(frozen=True)
class PolicyScore:
    """One policy, acting one way, over one episode in each of its environments."""

    policy: int
    mode: Mode
    episodes: int
    return_mean: float
    return_std: float
    length_mean: float
    terminated: float
    """Share of episodes that ended before the time limit."""
    extra: dict[str, float] = field(default_factory=dict)
    """The task's own episode figures, averaged over episodes."""


@dataclass(frozen=True)
class Evaluation:
    """All policies of a run."""

    task: str
    algo: str
    iteration: int
    env_steps: int
    seed: int
    scores: tuple[PolicyScore, ...]
    leader: int = 0
    """The policy that stands for the run: in a population, the one that trained best."""


def evaluate(
    folder: RunFolder,
    num_envs: int = 64,
    seed: int = 1000,
    device: str = "auto",
    checkpoint: checkpoints.Which = "newest",
    make_env: MakeEnv | None = None,
) -> Evaluation:
    """One episode in each of `num_envs` environments per policy, acting both ways. All meet the same starts: each has
    environments of its own, made with the same seed."""
    require("num_envs", num_envs, COUNT.up_to(10**6))
    found = checkpoints.load(folder, checkpoint)
    config, where = folder.config, choose_device(device)
    torch.set_num_threads(config.threads)
    make_env = make_env or maker(config)
    policies = complete(config).num_policies
    one_step = replace(config.update, horizon=1)
    require_room_for_envs(replace(config, num_envs=num_envs, update=one_step), make_env, where)
    scores: list[PolicyScore] = []
    for mode in ("deterministic", "sampled"):
        for policy in range(policies):
            env = make_env(num_envs, where, seed)
            if isinstance(env, Adaptive):
                env.adopt(found.state["trainer"]["env"])
            model = load_model(env, config, found.state["trainer"]["model"])
            each = policies // model.networks
            ids = torch.full((num_envs,), policy % each, device=where)
            figures = _first_episodes(env, model.only(policy // each), ids, mode, seed)
            scores.append(_score(figures, policy, mode))
    steps = config.steps_per_iteration * found.iteration
    leader = found.state["trainer"]["leader"]
    return Evaluation(config.task, config.algo, found.iteration, steps, seed, tuple(scores), leader)


def load_model(env: Env, config: TrainConfig, state: Any) -> ActorCritic:
    """A run's networks, for an environment like the one it was trained in."""
    model = make_model(env, replace(config, precision="fp32"))
    try:
        model.load_state_dict(state)
    except RuntimeError:
        raise UserError(
            f"the network of this run does not fit {config.task}; if it was trained in an environment of your own, "
            "pass the same make_env"
        ) from None
    return model.to(env.device)


def _first_episodes(env: Env, model: ActorCritic, policy_id: Tensor, mode: Mode, seed: int) -> dict[str, Tensor]:
    """Figures `[N]` of every environment's first episode."""
    generator = torch.Generator(env.device).manual_seed(seed) if mode == "sampled" else None
    player = Player(env, Actor(model, policy_id))
    player.reset()
    running = torch.ones(env.num_envs, device=env.device)
    figures = {name: torch.zeros_like(running) for name in ("return", "length", "terminated")}
    longest = env.longest_episode if isinstance(env, Extendable) else env.episode_length
    for t in range(longest):
        if t % CHECK_END_EVERY == 0 and not running.any():
            break
        step = player.step(generator)
        done = (step.terminated | step.truncated).float()
        figures["return"] += running * step.reward
        figures["length"] += running
        figures["terminated"] += running * step.terminated
        for name, x in step.log.items():
            if name.startswith("episode/"):
                name = name.removeprefix("episode/")
                figures[name] = figures.get(name, torch.zeros_like(running)) + running * done * x
        running = running * (1 - done)
    return figures


def _score(figures: dict[str, Tensor], policy: int, mode: Mode) -> PolicyScore:
    table = {name: x.double().cpu() for name, x in figures.items()}
    means = {name: x.mean().item() for name, x in table.items()}
    common = {"return", "length", "terminated"}
    return PolicyScore(
        policy=policy,
        mode=mode,
        episodes=len(table["return"]),
        return_mean=means["return"],
        return_std=table["return"].std(correction=0).item(),
        length_mean=means["length"],
        terminated=means["terminated"],
        extra={name: mean for name, mean in means.items() if name not in common},
    )

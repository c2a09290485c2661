"""Score every policy of a run: each environment counted once, deterministic and sampled."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from echelon.algorithms import complete
from echelon.config import TrainConfig
from echelon.config.checks import choose_device
from echelon.config.ranges import COUNT, require
from echelon.envs.contract import Adaptive, Env, Extendable, MakeEnv
from echelon.errors import UserError
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.acting import Actor, Player
from echelon.runs import checkpoint as checkpoints
from echelon.runs.folder import RunFolder
from echelon.tasks import built_in, make, maker
from echelon.training.memory import explain_full_memory
from echelon.training.trainer import make_model

Mode = Literal["deterministic", "sampled"]
MODES: tuple[Mode, ...] = ("deterministic", "sampled")
Figures = dict[str, Tensor]
"""Of first episodes, `[N]` each: `return`, `length`, `terminated`, and the task's own."""
MAX_SIDE_BY_SIDE = 16_384
"""Environments up to which all policies act in one batch."""
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
    """Scores of all policies of a run."""

    task: str
    algo: str
    iteration: int
    env_steps: int
    seed: int
    scores: tuple[PolicyScore, ...]
    leader: int = 0
    """The policy that stands for the run: in a population, the one that trained best."""


def evaluate(
    run: RunFolder | str | Path,
    num_envs: int = 64,
    seed: int = 1000,
    device: str = "auto",
    checkpoint: checkpoints.Which = "newest",
    make_env: MakeEnv | None = None,
) -> Evaluation:
    """One episode in each of `num_envs` environments per policy, acting both ways. All meet the same starts: each has
    environments of its own, made with the same seed, or its block of one batch in which the same happens by chance."""
    require("num_envs", num_envs, COUNT.up_to(10**6))
    folder = run if isinstance(run, RunFolder) else RunFolder.open(run)
    found = checkpoints.load(folder, checkpoint)
    config, where = folder.config, choose_device(device)
    torch.set_num_threads(config.threads)
    policies, state = complete(config).num_policies, found.state["trainer"]
    small = 2 * policies * num_envs <= MAX_SIDE_BY_SIDE
    with explain_full_memory(replace(config, num_envs=num_envs, device=where.type)):  # pyright: ignore[reportArgumentType]
        if where.type == "cuda" and small and make_env is None and built_in(config):
            figures = side_by_side(config, state, policies, num_envs, where, seed)
        else:
            figures = one_after_another(config, state, policies, num_envs, where, seed, make_env or maker(config))
    scores = [_score(figures[policy, mode], policy, mode) for mode in MODES for policy in range(policies)]
    steps = config.steps_per_iteration * found.iteration
    leader = found.state["trainer"]["leader"]
    return Evaluation(config.task, config.algo, found.iteration, steps, seed, tuple(scores), leader)


def one_after_another(
    config: TrainConfig, state: Any, policies: int, num_envs: int, device: torch.device, seed: int, make_env: MakeEnv
) -> dict[tuple[int, Mode], Figures]:
    """Figures of every policy and mode, in environments made for each: what any environment can, and what takes the
    fewest steps, since each stops when its own episodes have ended."""
    found: dict[tuple[int, Mode], Figures] = {}
    for mode, policy in itertools.product(MODES, range(policies)):
        env = _adapted(make_env(num_envs, device, seed), state)
        model = load_model(env, config, state["model"])
        each = policies // model.networks
        actor = Actor(model.only(policy // each), torch.full((num_envs,), policy % each, device=device))
        noise = _noise(env, seed) if mode == "sampled" else lambda: None
        found[policy, mode] = _first_episodes(env, actor, noise)
    return found


def side_by_side(
    config: TrainConfig, state: Any, policies: int, num_envs: int, device: torch.device, seed: int
) -> dict[tuple[int, Mode], Figures]:
    """`one_after_another` in one batch, a block per policy and mode: a step on a GPU takes all as long as few."""
    blocks = policies * len(MODES)
    env = make(config.task, config.env, blocks * num_envs, device, seed, blocks=blocks)
    actor = Actor(
        load_model(_adapted(env, state), config, state["model"]),
        torch.arange(policies, device=device).repeat_interleave(len(MODES) * num_envs),
    )
    sampled = torch.tensor([mode == "sampled" for mode in MODES], device=device).float()
    scale, draw = sampled.repeat_interleave(num_envs).repeat(policies)[:, None], _noise(env, seed, num_envs)
    figures = _first_episodes(env, actor, lambda: scale * draw().repeat(blocks, 1))
    places = enumerate(itertools.product(range(policies), MODES))
    return {key: {name: x.chunk(blocks)[k] for name, x in figures.items()} for k, key in places}


def _adapted(env: Env, state: Any) -> Env:
    """The environment at the difficulty that training had reached."""
    if isinstance(env, Adaptive):
        env.adopt(state["env"])
    return env


def _noise(env: Env, seed: int, rows: int | None = None) -> Callable[[], Tensor]:
    """Standard deviations by which actions are to differ from their means, `[rows, A]` for every step."""
    generator = torch.Generator(env.device).manual_seed(seed)
    shape = (env.num_envs if rows is None else rows, env.action_dim)
    return lambda: torch.randn(shape, generator=generator, device=env.device)


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


def _first_episodes(env: Env, actor: Actor, noise: Callable[[], Tensor | None]) -> Figures:
    """Figures `[N]` of every environment's first episode."""
    player = Player(env, actor)
    player.reset()
    running = torch.ones(env.num_envs, device=env.device)
    figures = {name: torch.zeros_like(running) for name in ("return", "length", "terminated")}
    longest = env.longest_episode if isinstance(env, Extendable) else env.episode_length
    for t in range(longest):
        if t % CHECK_END_EVERY == 0 and not running.any():
            break
        step = player.act(noise())
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


def _score(figures: Figures, policy: int, mode: Mode) -> PolicyScore:
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

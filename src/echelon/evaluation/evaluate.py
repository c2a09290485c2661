"""Score every policy of a run: each environment counted once, deterministic and sampled."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from echelon.config.checks import choose_device, require
from echelon.config.ranges import COUNT
from echelon.envs.contract import Env, MakeEnv
from echelon.evaluation.trained import Trained
from echelon.rollout.acting import Actor, Player
from echelon.runs.checkpoint import Which
from echelon.runs.folder import RunFolder
from echelon.tasks import built_in, make
from echelon.training.resolve import explain_full_memory

Mode = Literal["deterministic", "sampled"]
MODES: tuple[Mode, ...] = ("deterministic", "sampled")
Figures = dict[str, Tensor]
"""Figures of first episodes, `[N]` each: `return`, `length`, `terminated`, and the task's own."""
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
    checkpoint: Which = "newest",
    make_env: MakeEnv | None = None,
) -> Evaluation:
    """Score one episode in each of `num_envs` environments per policy, with deterministic and with sampled actions.

    All policies start from the same states: each has environments of its own, made with the same seed, or a block of
    one batch in which every block draws the same random numbers.
    """
    require("num_envs", num_envs, COUNT.up_to(10**6))
    trained, where = Trained.load(run, checkpoint, make_env), choose_device(device)
    config = trained.config
    torch.set_num_threads(config.threads)
    policies = trained.model.policies
    trained.model.to(where)
    small = 2 * policies * num_envs <= MAX_SIDE_BY_SIDE
    with explain_full_memory(replace(config, num_envs=num_envs, device=where.type)):  # pyright: ignore[reportArgumentType]
        if where.type == "cuda" and small and make_env is None and built_in(config):
            figures = side_by_side(trained, num_envs, where, seed)
        else:
            figures = one_after_another(trained, num_envs, where, seed)
    scores = [_score(figures[policy, mode], policy, mode) for mode in MODES for policy in range(policies)]
    steps = config.steps_per_iteration * trained.iteration
    return Evaluation(config.task, config.algo, trained.iteration, steps, seed, tuple(scores), trained.leader)


def one_after_another(
    trained: Trained, num_envs: int, device: torch.device, seed: int
) -> dict[tuple[int, Mode], Figures]:
    """Figures of every policy and mode, in environments made for each. Works with every environment, and stops each
    policy as soon as its own episodes end."""
    found: dict[tuple[int, Mode], Figures] = {}
    for mode, policy in itertools.product(MODES, range(trained.model.policies)):
        env = trained.make_env(num_envs, device, seed)
        noise = _noise(env, seed) if mode == "sampled" else lambda: None
        found[policy, mode] = _first_episodes(env, trained.actor(policy, num_envs), noise)
    return found


def side_by_side(trained: Trained, num_envs: int, device: torch.device, seed: int) -> dict[tuple[int, Mode], Figures]:
    """`one_after_another` in one batch, a block per policy and mode: a GPU steps many as fast as few."""
    config, policies = trained.config, trained.model.policies
    blocks = policies * len(MODES)
    env = trained.adapted(make(config.task, config.env, blocks * num_envs, device, seed, blocks=blocks))
    actor = Actor(trained.model, torch.arange(policies, device=device).repeat_interleave(len(MODES) * num_envs))
    sampled = torch.tensor([mode == "sampled" for mode in MODES], device=device).float()
    scale, draw = sampled.repeat_interleave(num_envs).repeat(policies)[:, None], _noise(env, seed, num_envs)
    figures = _first_episodes(env, actor, lambda: scale * draw().repeat(blocks, 1))
    places = enumerate(itertools.product(range(policies), MODES))
    return {key: {name: x.chunk(blocks)[k] for name, x in figures.items()} for k, key in places}


def _noise(env: Env, seed: int, rows: int | None = None) -> Callable[[], Tensor]:
    """Draws noise of actions in standard deviations, `[rows, A]` per step."""
    generator = torch.Generator(env.device).manual_seed(seed)
    shape = (env.num_envs if rows is None else rows, env.action_dim)
    return lambda: torch.randn(shape, generator=generator, device=env.device)


def _first_episodes(env: Env, actor: Actor, noise: Callable[[], Tensor | None]) -> Figures:
    """Figures `[N]` of every environment's first episode."""
    player = Player(env, actor)
    player.reset()
    running = torch.ones(env.num_envs, device=env.device)
    figures = {name: torch.zeros_like(running) for name in ("return", "length", "terminated")}
    for t in range(getattr(env, "longest_episode", env.episode_length)):
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

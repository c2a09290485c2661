"""Score every policy of a run, each environment counted once: deterministic and sampled, and in changed physics."""

import dataclasses
import itertools
import json
import math
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from rich.table import Table
from torch import Tensor

from echelon.config import TrainConfig
from echelon.config.checks import choose_device, require
from echelon.config.ranges import COUNT
from echelon.config.schema import PLAIN, WIDE, RandomiseConfig
from echelon.console.wording import count, figure
from echelon.envs.contract import Env, MakeEnv
from echelon.errors import UserError
from echelon.rollout.acting import Actor, Player
from echelon.runs.checkpoint import Which
from echelon.runs.durable import replace_durably, writing
from echelon.runs.evaluations import Axis, Evaluation, PolicyScore, Robustness, write_evaluation
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import jsonable, read_lines
from echelon.runs.trained import Trained
from echelon.tasks import built_in, maker
from echelon.training.resolve import explain_full_memory

Mode = Literal["deterministic", "sampled"]
MODES: tuple[Mode, ...] = ("deterministic", "sampled")
Figures = dict[str, Tensor]
"""Figures of first episodes, `[N]` each: `return`, `length`, `terminated`, and the task's own."""
MAX_SIDE_BY_SIDE = 16_384
"""Environments up to which all policies act in one batch."""
CHECK_END_EVERY = 16
"""Steps between two checks whether all episodes have ended; each check waits for the device."""
POINTS = 5
"""Values of each parameter, from the lowest to the highest of its range."""


def evaluate(
    run: RunFolder | str | Path,
    num_envs: int = 64,
    seed: int = 1000,
    device: str = "auto",
    checkpoint: Which = "newest",
    make_env: MakeEnv | None = None,
    randomise: RandomiseConfig | None = PLAIN,
) -> Evaluation:
    """Score one episode in each of `num_envs` environments per policy, with deterministic and with sampled actions.

    Physics is plain unless `randomise` has ranges, even for a run that was trained with some; None takes those. All
    policies start from the same states: each has environments of its own, made with the same seed, or a block of one
    batch in which every block draws the same random numbers.
    """
    require("num_envs", num_envs, COUNT.up_to(10**6))
    trained, where = Trained.load(run, checkpoint, make_env), choose_device(device)
    trained = trained if randomise is None else trained.randomised(randomise)
    config, policies = trained.config, trained.model.policies
    torch.set_num_threads(config.threads)
    trained.model.to(where)
    small = len(MODES) * policies * num_envs <= MAX_SIDE_BY_SIDE
    together = where.type == "cuda" and small and make_env is None and built_in(config)
    with explain_full_memory(dataclasses.replace(config, num_envs=num_envs, device=where.type)):  # pyright: ignore[reportArgumentType]
        figures = (side_by_side if together else one_after_another)(trained, num_envs, where, seed)
    scores = tuple(_score(figures[policy, mode], policy, mode) for mode in MODES for policy in range(policies))
    steps = config.steps_per_iteration * trained.iteration
    return Evaluation(config.task, config.algo, trained.iteration, steps, seed, scores, trained.leader)


def robustness(
    run: RunFolder | str | Path,
    num_envs: int = 64,
    seed: int = 1000,
    device: str = "auto",
    checkpoint: Which = "newest",
    ranges: RandomiseConfig = WIDE,
) -> Robustness:
    """Mean score of `num_envs` episodes, with deterministic actions, at every value of every parameter in `ranges`.

    All values are tried side by side in one batch per policy, in blocks that in built-in tasks draw the same random
    numbers.
    """
    require("num_envs", num_envs, COUNT.up_to(10**4))
    if not (names := list(ranges.active())):
        raise UserError("ranges change nothing of the physics; give some, as in RandomiseConfig(mass=(0.5, 1.5))")
    trained, where = Trained.load(run, checkpoint).randomised(ranges), choose_device(device)
    blocks = 1 + POINTS * len(names)  # plain physics first
    rows = {name: slice(1 + POINTS * k, 1 + POINTS * (k + 1)) for k, name in enumerate(names)}
    values = {name: torch.full((blocks,), getattr(PLAIN, name)[0]) for name in names}
    for name, at in rows.items():
        low, high = getattr(ranges, name)
        values[name][at] = torch.linspace(low, high, POINTS)
    each = {name: x.repeat_interleave(num_envs).to(where) for name, x in values.items()}
    trained.model.to(where)
    scores: list[list[float]] = []
    score = "return"
    for policy in range(trained.model.policies):
        env = trained.make_env(blocks * num_envs, where, seed, blocks)
        env.randomiser.pin(each)  # pyright: ignore[reportAttributeAccessIssue]
        score = getattr(env, "objective", score)
        figures = first_episodes(env, trained.actor(policy, env.num_envs), lambda: None)
        scores.append(figures[score].view(blocks, num_envs).double().mean(1).tolist())
    axes = {
        name: Axis(tuple(values[name][at].tolist()), tuple(tuple(found[at]) for found in scores))
        for name, at in rows.items()
    }
    plain = tuple(found[0] for found in scores)
    return Robustness(trained.iteration, trained.leader, num_envs, score, plain, axes)


class evaluate_every:
    """Evaluate while a run is trained, each `every` iterations and at the end.

    `train(config, callbacks=[evaluate_every(50)])`, or `--evaluate-every 50`. Without a number, as often as takes about
    1 % of the training time.

    Results are appended to the run's `evaluations.jsonl`, the last also written to `evaluation.json`. The leader's
    return with deterministic actions is logged as `evaluated/leader`.
    """

    def __init__(self, every: int | None = None, num_envs: int = 32, seed: int = 1000) -> None:
        self.every, self.num_envs, self.seed = every, num_envs, seed

    def on_checkpoint(self, folder: RunFolder, make_env: MakeEnv | None) -> dict[str, float]:
        """Score the newest checkpoint."""
        found = evaluate(folder, self.num_envs, self.seed, folder.config.device, "newest", make_env)
        path = folder.path / "evaluations.jsonl"
        lines = [line for line in read_lines(path) if line["iteration"] < found.iteration]  # a resumed run repeats some
        lines.append(jsonable(dataclasses.asdict(found)))
        with writing(folder.path):
            write_evaluation(found, folder.evaluation)
            replace_durably(path, "".join(json.dumps(line) + "\n" for line in lines).encode())
        return {"evaluated/leader": found.of("return")}


def one_after_another(
    trained: Trained, num_envs: int, device: torch.device, seed: int
) -> dict[tuple[int, Mode], Figures]:
    """Figures of every policy and mode, in environments made for each. Works with every environment, and stops each
    policy as soon as its own episodes end."""
    found: dict[tuple[int, Mode], Figures] = {}
    for mode, policy in itertools.product(MODES, range(trained.model.policies)):
        env = trained.make_env(num_envs, device, seed)
        noise = _noise(env, seed, num_envs) if mode == "sampled" else lambda: None
        found[policy, mode] = first_episodes(env, trained.actor(policy, num_envs), noise)
    return found


def side_by_side(trained: Trained, num_envs: int, device: torch.device, seed: int) -> dict[tuple[int, Mode], Figures]:
    """`one_after_another` in one batch, a block per policy and mode: a GPU steps many as fast as few."""
    policies = trained.model.policies
    blocks = policies * len(MODES)
    env = trained.make_env(blocks * num_envs, device, seed, blocks)
    actor = Actor(trained.model, torch.arange(policies, device=device).repeat_interleave(len(MODES) * num_envs))
    sampled = torch.tensor([mode == "sampled" for mode in MODES], device=device).float()
    scale, draw = sampled.repeat_interleave(num_envs).repeat(policies)[:, None], _noise(env, seed, num_envs)
    figures = first_episodes(env, actor, lambda: scale * draw().repeat(blocks, 1))
    places = enumerate(itertools.product(range(policies), MODES))
    return {key: {name: x.chunk(blocks)[k] for name, x in figures.items()} for k, key in places}


def _noise(env: Env, seed: int, rows: int) -> Callable[[], Tensor]:
    """Draws noise of actions in standard deviations, `[rows, A]` per step."""
    generator = torch.Generator(env.device).manual_seed(seed)
    return lambda: torch.randn((rows, env.action_dim), generator=generator, device=env.device)


def first_episodes(env: Env, actor: Actor, noise: Callable[[], Tensor | None]) -> Figures:
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
                figures[name] = torch.where(running * done > 0, x, figures.get(name, torch.zeros_like(running)))
        running = running * (1 - done)
    return figures


def score_names(config: TrainConfig) -> list[str]:
    """Figures of an episode in a built-in task, which one step tells."""
    env = maker(config)(1, torch.device("cpu"), config.seed)
    env.reset()
    with torch.inference_mode():
        log = env.step(torch.zeros(1, env.action_dim)).log
    return ["return", "length", *(name.removeprefix("episode/") for name in log if name.startswith("episode/"))]


def _score(figures: Figures, policy: int, mode: Mode) -> PolicyScore:
    table = {name: x.double().cpu() for name, x in figures.items()}
    returns, means = table["return"], {name: x.mean().item() for name, x in table.items()}
    mean, length, ended = (means.pop(name) for name in ("return", "length", "terminated"))
    return PolicyScore(policy, mode, len(returns), mean, returns.std(correction=0).item(), length, ended, extra=means)


def _table(*left: str) -> Table:
    """A table whose first columns have these headings."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="cyan")
    for heading in left:
        table.add_column(heading, no_wrap=True)
    return table


def score_table(evaluation: Evaluation) -> Table:
    """A row per policy and way of acting; the leader is bold."""
    extras = list(dict.fromkeys(name for score in evaluation.scores for name in score.extra))
    table = _table("policy", "actions")
    table.add_column("return", justify="right", no_wrap=True)
    for heading in ("length", "ended early", *(name.replace("_", " ") for name in extras)):
        table.add_column(heading, justify="right")
    for score in evaluation.scores:
        leads = score.policy == evaluation.leader
        table.add_row(
            f"{score.policy} leader" if leads else str(score.policy),
            score.mode,
            f"{figure(score.return_mean)} ± {figure(score.return_std)}",
            figure(score.length_mean),
            f"{score.terminated:.0%}",
            *(figure(score.extra.get(name, math.nan)) for name in extras),
            style="bold" if leads else None,
        )
    return table


def headline(evaluation: Evaluation) -> str:
    """Task, algorithm and length of training in one line."""
    trained = f"{evaluation.iteration:,} iterations ({count(evaluation.env_steps)} steps)"
    return f"{evaluation.task}, {evaluation.algo}, after {trained}, {evaluation.scores[0].episodes} episodes each"


def robustness_table(found: Robustness) -> Table:
    """A row per parameter, a column per policy: its mean over the range; the leader's are bold."""
    table = _table(found.score)
    for policy in range(len(found.plain)):
        leads = policy == found.leader
        table.add_column(f"{policy} leader" if leads else str(policy), justify="right", style="bold" if leads else None)
    table.add_row("plain", *map(figure, found.plain))
    for name, axis in found.parameters.items():
        span = f"{name.replace('_', ' ')} {axis.values[0]:g} to {axis.values[-1]:g}"
        table.add_row(span, *(figure(sum(scores) / len(scores)) for scores in axis.scores))
    table.add_row("all of them", *(figure(found.mean(policy)) for policy in range(len(found.plain))))
    return table


def verdict(found: Robustness, run: str, checkpoint: Which = "newest") -> str:
    """Say which policy is the most robust, and how to export it."""
    leader, best = figure(found.mean(found.leader)), found.best
    if len(found.plain) == 1:
        return f"In changed physics it scores {leader} over all values, in plain physics {figure(found.plain[0])}."
    if best == found.leader:
        return f"In changed physics the leader is best: {leader} over all values."
    better = f"In changed physics policy {best} is better than the leader: {figure(found.mean(best))} against {leader}"
    which = "" if checkpoint == "newest" else f" --checkpoint {checkpoint}"
    return f"{better}; echelon export {shlex.quote(run)} --policy {best}{which} takes it along."

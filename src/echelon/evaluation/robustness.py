"""Score every policy of a run while one parameter of its physics after another leaves its plain value."""

import shlex
from pathlib import Path

import torch
from rich.table import Table

from echelon.config.checks import choose_device, require
from echelon.config.ranges import COUNT
from echelon.config.schema import PLAIN, WIDE, RandomiseConfig
from echelon.console.wording import figure
from echelon.evaluation.evaluate import first_episodes
from echelon.runs.checkpoint import Which
from echelon.runs.evaluations import Axis, Robustness
from echelon.runs.folder import RunFolder
from echelon.runs.trained import Trained

POINTS = 5
"""Values of each parameter, from the lowest to the highest of its range."""


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
    trained, where = Trained.load(run, checkpoint).randomised(ranges), choose_device(device)
    names = list(ranges.active())
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


def robustness_table(found: Robustness) -> Table:
    """A row per parameter, a column per policy: its mean over the range; the leader's are bold."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="cyan")
    table.add_column(found.score, no_wrap=True)
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
    if best == found.leader:
        return f"In changed physics the leader is best: {leader} over all values."
    better = f"In changed physics policy {best} is better than the leader: {figure(found.mean(best))} against {leader}"
    which = "" if checkpoint == "newest" else f" --checkpoint {checkpoint}"
    return f"{better}; echelon export {shlex.quote(run)} --policy {best}{which} takes it along."

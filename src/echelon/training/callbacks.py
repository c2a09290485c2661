"""Callbacks of the training loop.

A callback is called after every iteration with its metrics by name. It returns nothing, a text to show, or a `Stop`,
which saves the run and ends it. A `CheckpointCallback` is called with checkpoints instead, at an interval of its own.
"""

import math
import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from echelon.envs.contract import MakeEnv
from echelon.errors import UserError, nearest
from echelon.runs.folder import RunFolder

COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
OCCASIONAL = {"ess", "is_deviation", "clip_bias", "clip_bias_bound", "kl/follower_to_leader", "nearest_is_leader"}
OCCASIONAL |= {"evaluated/leader"}
"""Metrics of diagnostics and evaluations, which only some iterations have."""
SHARE, FIRST_S = 0.01, 2.0
"""Share of the training time for callbacks without an interval, and the time that the first call is taken to need."""


@dataclass(frozen=True)
class Stop:
    """End training after this iteration."""

    reason: str


Callback = Callable[[Mapping[str, float]], "Stop | str | None"]


@runtime_checkable
class CheckpointCallback(Protocol):
    """A callback that opens the run's newest checkpoint every `every` iterations and at the end: an evaluation, a film.
    The loop saves a checkpoint for it first. With `every` unset, it is called with checkpoints that are saved anyway,
    as often as takes about `SHARE` of the training time."""

    @property
    def every(self) -> int | None: ...

    def on_checkpoint(self, folder: RunFolder, make_env: MakeEnv | None) -> Mapping[str, float] | None:
        """What it returns is added to the metrics of all iterations until the next call."""
        ...


def call(
    callbacks: Sequence[CheckpointCallback], folder: RunFolder, make_env: MakeEnv | None, say: Callable[[str], None]
) -> dict[str, float]:
    """Call them, and collect the metrics they return. Random generators are restored afterwards, so that training is
    the same with and without them; their errors become warnings."""
    found: dict[str, float] = {}
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    for one in callbacks:
        of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  # what environments may use
        try:
            with torch.random.fork_rng(devices):
                found |= one.on_checkpoint(folder, make_env) or {}
        except UserError as error:
            say(f"WARNING: {type(one).__name__} failed, and training continues: {error}")
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)  # noqa: NPY002
    return found


def until(condition: str) -> Callback:
    """Stop once a metric passes a value: `env/distance<0.02`, or `return>=500`, which is that of the leader."""
    found = re.fullmatch(r"\s*([\w/.+-]+?)\s*(>=|<=|>|<)\s*(\S+)\s*", condition)
    try:
        name, comparison, value = found.groups() if found else ("", "", "")
        limit = float(value)
        if not math.isfinite(limit):
            raise ValueError
    except ValueError:
        raise UserError(f"--until takes a metric and a limit, as in return>=500, not {condition!r}") from None

    def ask(metrics: Mapping[str, float]) -> Stop | None:
        found = _full_name(name, metrics, f"--until {condition}")
        if found is None or not COMPARISONS[comparison](value := metrics[found], limit) or not math.isfinite(value):
            return None
        return Stop(f"{found} is {value:.6g}")

    return ask


def _full_name(name: str, metrics: Mapping[str, float], who: str) -> str | None:
    """Find `name` or `name/leader` among the metrics: None if only some iterations have it, an error if none has."""
    names = name, f"{name}/leader"
    found = next((one for one in names if one in metrics), None)
    if found is None and not set(names) & OCCASIONAL:
        raise UserError(f"{who}: {name} is not a metric of this run{nearest(name, metrics)}")
    return found


def no_better_for(iterations: int, metric: str = "return/leader") -> Callback:
    """Stop when the highest value of a metric is this many iterations old; not before it has one."""
    best, since = -math.inf, 0

    def ask(metrics: Mapping[str, float]) -> Stop | None:
        nonlocal best, since
        found = _full_name(metric, metrics, "no_better_for")
        value = math.nan if found is None else metrics[found]
        best, since = (value, 0) if value > best else (best, since + (best > -math.inf))
        return Stop(f"{metric} has not risen above {best:.6g} for {since} iterations") if since >= iterations else None

    return ask

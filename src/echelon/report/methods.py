"""Grouping runs into methods: a **method** is an algorithm or variant with one set of settings, a run per seed."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from echelon.config import ALGORITHMS
from echelon.report.reading import Run
from echelon.runs.folder import MAY_CHANGE

NOT_THE_METHOD = ("task", "seed", *MAY_CHANGE)
"""Settings, and groups of settings, in which two runs of one method may differ."""


@dataclass(frozen=True)
class Method:
    """A name, and its runs over all tasks."""

    name: str
    algo: str
    runs: tuple[Run, ...]

    def on(self, task: str) -> list[Run]:
        """Its runs of one task."""
        return [run for run in self.runs if run.task == task]

    @property
    def colour(self) -> int | None:
        """Its algorithm's place in the palette, if that has one."""
        return next((run.colour for run in self.runs if run.colour is not None), None)


def group_runs(runs: Sequence[Run]) -> list[Method]:
    """Methods, ordered by algorithm as the config lists them, variants after the algorithm they vary.

    Where runs of one name and task differ by more than the seed, the settings they differ in become part of the name.
    """
    varied = {name: _varied(runs, name) for name in dict.fromkeys(_title(run) for run in runs)}
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        parts = [f"{_short(name)} {worded(run.settings.get(name))}" for name in varied[_title(run)]]
        groups[" · ".join([_title(run), *parts])].append(run)
    methods = [Method(name, group[0].config.algo, tuple(group)) for name, group in groups.items()]
    return sorted(methods, key=_rank)


def _title(run: Run) -> str:
    """What a run trains: its variant, or else its algorithm."""
    return run.config.method if run.config.variant else run.config.algo.upper()


def _rank(method: Method) -> tuple[int, bool]:
    """Orders by algorithm, those registered from outside last, and variants after what they vary."""
    known = method.algo in ALGORITHMS
    return ALGORITHMS.index(method.algo) if known else len(ALGORITHMS), bool(method.runs[0].config.variant)


def differing(runs: Sequence[Run]) -> list[str]:
    """Settings that are not the same in all of `runs`, by name."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [name for name in names if len({worded(run.settings.get(name)) for run in runs}) > 1]


def _varied(runs: Sequence[Run], title: str) -> list[str]:
    """Settings in which runs of one name and one task differ. Settings that differ only between
    tasks do not count: each task has its preset."""
    varied: dict[str, None] = {}
    for task in dict.fromkeys(run.task for run in runs):
        same = [run for run in runs if (run.task, _title(run)) == (task, title)]
        varied |= dict.fromkeys(differing(same))
    return [name for name in varied if not {name, name.split(".")[0]} & set(NOT_THE_METHOD)]


def _short(name: str) -> str:
    """A setting's name without its group."""
    return name.rpartition(".")[2].replace("_", " ")


def worded(value: Any) -> str:
    """A setting's value as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(worded, value))
    return "-" if value is None else str(value)

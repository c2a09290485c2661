"""Grouping runs into methods: a **method** is an algorithm or variant with one set of settings, a run per seed."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from echelon.algorithms import BUILT_IN
from echelon.report.reading import Run
from echelon.runs.changes import MAY_CHANGE

NOT_THE_METHOD = ("task", "seed", "preset", *MAY_CHANGE)
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

    Where runs of one name and task differ by more than the seed, what differs becomes part of the name: the one setting
    that varies, or of several only those that are not what most runs of the task have.
    """
    groups: dict[str, list[Run]] = defaultdict(list)
    for title in dict.fromkeys(_title(run) for run in runs):
        same = [run for run in runs if _title(run) == title]
        varied = _varied(same)
        for run in same:
            usual = {name: _usual(same, run.task, name) for name in varied}
            told = [
                name
                for name in varied
                if name in run.settings and (len(varied) == 1 or worded(run.settings[name]) != usual[name])
            ]
            parts = [f"{re.sub('[._]', ' ', name)} {worded(run.settings.get(name))}" for name in told]
            groups[" · ".join([title, *parts])].append(run)
    methods = [Method(name, group[0].config.algo, tuple(group)) for name, group in groups.items()]
    return sorted(methods, key=_rank)


def _title(run: Run) -> str:
    """What a run trains: its variant, or else its algorithm; short names are initials, longer ones words."""
    algo = run.config.algo
    return run.config.method if run.config.variant else algo.upper() if len(algo) < 5 else algo.capitalize()


def _rank(method: Method) -> tuple[int, bool, int]:
    """Orders by algorithm, those registered from outside last, and variants after what they vary."""
    place = list(BUILT_IN).index(method.algo) if method.algo in BUILT_IN else len(BUILT_IN)
    return place, bool(method.runs[0].config.variant), method.name.count(" · ")


def differing(runs: Sequence[Run], what: str = "settings") -> list[str]:
    """Names of settings, or of what describes the `machine`, that are not the same in all of `runs`.

    A setting that only some algorithms have is compared between their runs.
    """
    owners: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for name in getattr(run, what):
            owners[name].add(run.config.algo)
    return [
        name
        for name, algos in owners.items()
        if len({worded(getattr(run, what).get(name)) for run in runs if run.config.algo in algos}) > 1
    ]


def _varied(same: Sequence[Run]) -> list[str]:
    """Settings in which runs of one task differ. Differences between tasks do not count: each has its preset."""
    varied: dict[str, None] = {}
    for task in dict.fromkeys(run.task for run in same):
        varied |= dict.fromkeys(differing([run for run in same if run.task == task]))
    return [name for name in varied if not {name, name.split(".")[0]} & {*NOT_THE_METHOD}]


def _usual(runs: Sequence[Run], task: str, name: str) -> str:
    """The value of a setting that most runs of a task have."""
    return Counter(worded(run.settings.get(name)) for run in runs if run.task == task).most_common(1)[0][0]


class Sweep(NamedTuple):
    """Methods of one task that differ in one numeric setting only."""

    task: str
    setting: str
    points: list[tuple[float, Method]]
    """By value, ascending."""


def find_sweeps(methods: Sequence[Method], task: str) -> list[Sweep]:
    """For each numeric setting with three values or more, the largest group of methods that agree in all others."""
    found = []
    for algo in dict.fromkeys(method.algo for method in methods):
        here = [(method, method.on(task)[0]) for method in methods if method.algo == algo and method.on(task)]
        varied = [name for name in _varied([run for _, run in here]) if name != "variant"]
        for setting in varied:
            groups: dict[tuple[str, ...], dict[float, Method]] = defaultdict(dict)
            for method, run in here:
                value = run.settings.get(setting)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    others = tuple(worded(run.settings.get(name)) for name in varied if name != setting)
                    groups[others].setdefault(float(value), method)
            largest = max(groups.values(), key=len, default={})
            if len(largest) >= 3:
                found.append(Sweep(task, setting, sorted(largest.items(), key=lambda point: point[0])))
    return found


def worded(value: Any) -> str:
    """A setting's value as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(worded, value))
    return "-" if value is None else str(value)

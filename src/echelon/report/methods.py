"""Grouping runs into methods: a **method** is an algorithm or variant with one set of settings, a run per seed. It has
the same looks in the page, in the figures and in every report.

Neighbouring colours can be told apart with any common colour blindness, on a light and on a dark ground;
tests/report/test_methods.py states by how much. From the ninth method on colours repeat, with other dashes.
"""

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
COLOURS = ("#E12F00", "#044189", "#438C6C", "#D760AD", "#6A3200", "#5831F5", "#302526", "#0A96F3")
DARK_COLOURS = ("#FF9E61", "#1C8EFE", "#16FFD1", "#F60B7A", "#B47F04", "#AB68B1", "#9BA5AC", "#3DC3FF")
"""The same hues for a dark ground."""
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (2, 1.5), (8, 2, 2, 2), (4, 1), (1, 1), (6, 1, 1, 1), (3, 3))


@dataclass(frozen=True)
class Method:
    """A name, and its runs over all tasks."""

    name: str
    runs: tuple[Run, ...]

    def on(self, task: str) -> list[Run]:
        """Its runs of one task."""
        return [run for run in self.runs if run.task == task]

    def counted(self, task: str) -> list[Run]:
        """Its runs of a task, each seed once: of one that was run again the longest, of equally long ones the first."""
        falling = sorted(self.on(task), key=lambda run: -run.env_steps)
        longest = {run.config.seed: run for run in falling[::-1]}
        return [run for run in self.on(task) if longest[run.config.seed] is run]

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
            odd = [name for name in varied if len(varied) == 1 or _value(run, name) != _usual(same, run.task, name)]
            parts = [f"{re.sub('[._]', ' ', name)} {_value(run, name)}" for name in odd if name in run.settings]
            groups[" · ".join([title, *parts])].append(run)
    methods = [Method(name, tuple(group)) for name, group in groups.items()]
    return sorted(methods, key=_rank)


def _title(run: Run) -> str:
    """What a run trains: its variant, or else its algorithm; short names are initials, longer ones words."""
    algo = run.config.algo
    return run.config.method if run.config.variant else algo.upper() if len(algo) < 5 else algo.capitalize()


def _rank(method: Method) -> tuple[int, bool, int]:
    """Orders by algorithm, those registered from outside last, and variants after what they vary."""
    config = method.runs[0].config
    place = [*BUILT_IN, config.algo].index(config.algo)
    return place, bool(config.variant), method.name.count(" · ")


def differing(runs: Sequence[Run], what: str = "settings") -> list[str]:
    """Names of settings, or of what describes the `machine`, that are not the same in all of `runs`. A setting that
    only some algorithms have is compared between their runs."""
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
    return Counter(_value(run, name) for run in runs if run.task == task).most_common(1)[0][0]


def _value(run: Run, name: str) -> str:
    return worded(run.settings.get(name))


def worded(value: Any) -> str:
    """A setting's value as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(worded, value))
    return "-" if value is None else str(value)


class Look(NamedTuple):
    """A method's line."""

    colour: int
    """Index into `COLOURS`."""
    dash: tuple[float, ...]


def looks(methods: Sequence[Method]) -> dict[str, Look]:
    """A look by method: its algorithm's colour if no method has it yet, otherwise the one used least. No two of up to
    64 methods have the same colour and dashes."""
    reserved, used, found = {method.colour for method in methods}, Counter[int](), dict[str, Look]()
    for method in methods:
        colour = method.colour
        if colour is None or used[colour]:
            colour = min(range(len(COLOURS)), key=lambda index: max(used[index], index in reserved))
        found[method.name] = Look(colour, DASHES[(colour + used[colour]) % len(DASHES)])
        used[colour] += 1
    return found

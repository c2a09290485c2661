"""The contents of a report: its runs, grouped into methods, and the metric they are judged by."""

import math
from dataclasses import dataclass, field

from echelon.report.curves import Band, band, thin
from echelon.report.methods import Method
from echelon.report.reading import Problem, Run

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Contents:
    """The runs of a report, and the folders that could not be read."""

    runs: list[Run]
    methods: list[Method]
    problems: list[Problem]
    score: str
    """The metric that decides who is better, `NAME/leader`."""
    _bands: dict[Key, Band | None] = field(default_factory=dict, repr=False)

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(run.task for run in self.runs))

    def scores(self, method: Method, task: str) -> list[float]:
        """Final scores of a method's finished runs."""
        values = [run.final(self.score) for run in method.on(task) if run.finished]
        return [value for value in values if math.isfinite(value)]

    def band(self, method: Method, task: str, metric: str, axis: str = "env_steps") -> Band | None:
        """Mean curve and spread of a method's runs of a task; cached, since tables and figures both need it."""
        key = (method.name, task, metric, axis)
        if key not in self._bands:
            runs = [run for run in method.on(task) if metric in run.columns and axis in run.columns]
            self._bands[key] = band([(thin(run, axis), thin(run, metric)) for run in runs])
        return self._bands[key]

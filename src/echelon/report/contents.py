"""All that a report is about: its runs, grouped into methods, and how they are judged."""

import math
from dataclasses import dataclass, field

from echelon.report.curves import Band, band, thin
from echelon.report.methods import Method
from echelon.report.reading import Problem, Run

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Contents:
    """Runs that could be read, and folders that could not."""

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
        """The method's runs of a task taken together; kept, since tables and figures both ask for it."""
        key = (method.name, task, metric, axis)
        if key not in self._bands:
            runs = [run for run in method.on(task) if metric in run.columns and axis in run.columns]
            self._bands[key] = band([(thin(run, axis), thin(run, metric)) for run in runs])
        return self._bands[key]

"""The progress of one run, as a line of text and as a dashboard."""

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from echelon.config import TrainConfig
from echelon.console.wording import count, duration, figure, percent, policies, sparkline
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_columns

PACE_ITERATIONS = 30
"""Iterations the time left is estimated from: enough to be steady, few enough to forget the slow first ones."""
SPARK_WIDTH = 32
LABEL, VALUE, DIM = "cyan", "bold", "bright_black"


class RunProgress:
    """The newest metrics of a run, any of which may be missing or NaN, and its returns so far."""

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        total_iterations: int,
        first_iteration: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config, self.folder = config, folder
        self.total, self.done = total_iterations, first_iteration
        self.metrics: dict[str, float] = {}
        self.returns: list[float] = []
        if first_iteration:
            with contextlib.suppress(OSError):  # the writer of the file reports it
                self.returns += map(float, read_columns(folder, "return/leader".__eq__).get("return/leader", ()))
        self._clock, self._first = clock, first_iteration
        self._marks = deque([(clock(), first_iteration)], maxlen=PACE_ITERATIONS)

    def update(self, metrics: Mapping[str, float]) -> None:
        """Add one iteration."""
        if len(self._marks) == 2 and self._marks[0][1] == self._first:
            self._marks.popleft()  # the first iteration compiles kernels, so its time does not count
        self.metrics = dict(metrics)
        self.done = int(metrics.get("iteration", self.done + 1))
        self._marks.append((self._clock(), self.done))
        self.returns.append(self.get("return/leader"))

    def get(self, name: str) -> float:
        """The newest value of a metric, NaN if it was not logged."""
        return self.metrics.get(name, math.nan)

    @property
    def seconds_left(self) -> float:
        """Time left at the pace of the last iterations; NaN before there is one."""
        (start, before), (end, done) = self._marks[0], self._marks[-1]
        return (end - start) / (done - before) * max(0, self.total - done) if done > before else math.nan

    def headline(self) -> str:
        """Name the task, the method and the run folder."""
        config = self.config
        return (
            f"{config.task}, {config.method}, {policies(config.num_policies)}, {config.num_envs} environments, "
            f"{config.device}, iterations {self.done} to {self.total}, in {self.folder.path}"
        )

    def line(self) -> str:
        """Say where the run stands, without figures that were not logged."""
        parts = [
            f"{self.done}/{self.total}",
            f"{self.done / max(1, self.total):4.0%}",
            f"left {duration(self.seconds_left)}",
            f"steps {count(self.get('env_steps'))}",
            f"steps/s {count(self.get('fps/total'))}",
            f"return {figure(self.get('return/leader'))}",
            f"successes {figure(self.get('successes/leader'))}",
            f"KL {figure(self.get('kl/own'))}",
            f"lr {figure(self.get('lr'))}",
        ]
        return "  ".join(part for part in parts if not part.endswith(" -"))

    def panel(self) -> RenderableType:
        """Draw a bar and rows of figures."""
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(justify="right", no_wrap=True)
        where = f"{self.done / max(1, self.total):.0%}  iteration {self.done:,}/{self.total:,}"
        left = f"  left {duration(self.seconds_left)}"
        bar.add_row(ProgressBar(total=max(1, self.total), completed=self.done), Text(where + left))
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style=LABEL, no_wrap=True)
        rows.add_column()
        for label, text in self._rows().items():
            if text.plain:
                rows.add_row(label, text)
        config = self.config
        title = (config.task, config.method, policies(config.num_policies), f"{config.num_envs:,} envs", config.device)
        return Panel(
            Group(bar, Text(), rows),
            title=Text(" · ".join(title), style=VALUE),
            title_align="left",
            subtitle=Text(str(self.folder.path), style=DIM),
            subtitle_align="left",
            border_style=DIM,
        )

    def _rows(self) -> dict[str, Text]:
        """Figures by label; empty where none was logged."""
        returns = Text(f"{figure(self.get('return/leader')):<8}", style=VALUE)
        returns.append(f" {sparkline(self.returns, SPARK_WIDTH)}", style="green")
        if followers := [value for name, value in self._under("return/policy_").items() if name != "0"]:
            returns.append(f"  followers {figure(min(followers))} to {figure(max(followers))}", style=DIM)
        learning = [
            ("rate", figure(self.get("lr"))),
            ("clipped", percent(self.get("clip_fraction/own"))),
            ("gradient", figure(self.get("grad_norm"))),
            ("entropy", figure(self.get("entropy/policy_0"))),
            ("ESS", figure(self.get("ess"))),
        ]
        seconds = {name: value for name, value in self._under("time/").items() if "/" not in name}
        total = sum(seconds.values())
        times = _listed((name, percent(value / total)) for name, value in seconds.items() if value >= 0.005 * total > 0)
        steps = self.get("env_steps")
        return {
            "return": returns,
            "successes": _listed([("", figure(self.get("successes/leader")))]),
            "env steps": _listed([("", f"{steps:,.0f}" if math.isfinite(steps) else "-")]),
            "steps/s": _listed((name.replace("total", ""), count(rate)) for name, rate in self._under("fps/").items()),
            "learning": _listed(learning),
            "KL": _listed((name.replace("_", " "), figure(value)) for name, value in self._under("kl/").items()),
            "time": times.append(f"  of {total:.2f} s", style=DIM) if total > 0 else Text(),
        }

    def _under(self, prefix: str) -> dict[str, float]:
        """Finite metrics that start with `prefix`, by the rest of their names."""
        found = {name.removeprefix(prefix): value for name, value in self.metrics.items() if name.startswith(prefix)}
        return {name: value for name, value in found.items() if math.isfinite(value)}


def _listed(items: Iterable[tuple[str, str]]) -> Text:
    """Join `name value` pairs on one line, without unknown values."""
    text = Text()
    for name, value in items:
        if value != "-":
            text.append("  " if text.plain else "")
            text.append(f"{name} " if name else "", style=DIM)
            text.append(value, style=VALUE)
    return text

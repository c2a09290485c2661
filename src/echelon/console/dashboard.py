"""The live table of a run: settings, progress, returns, speed, learning and times."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from echelon.console.progress import Progress
from echelon.console.wording import count, duration, figure, policies, sparkline

SPARK_WIDTH = 32
LABEL, VALUE, DIM = "cyan", "bold", "bright_black"


@dataclass(frozen=True)
class Item:
    """A figure in a row of the table."""

    name: str
    value: float
    wording: Callable[[float], str] = figure


def dashboard(progress: Progress) -> RenderableType:
    """The table as a rich renderable."""
    config = progress.config
    whose = policies(config.num_policies)
    title = f"{config.task} · {config.method} · {whose} · {config.num_envs:,} envs · {config.device}"
    return Panel(
        Group(_bar(progress), Text(), _figures(progress)),
        title=Text(title, style="bold"),
        title_align="left",
        subtitle=Text(str(progress.folder.path), style=DIM),
        subtitle_align="left",
        border_style=DIM,
    )


def _bar(progress: Progress) -> Table:
    """Progress of the whole run, resumed parts included."""
    line = Table.grid(padding=(0, 1), expand=True)
    line.add_column(ratio=1)
    line.add_column(justify="right", no_wrap=True)
    line.add_row(
        ProgressBar(total=max(1, progress.total), completed=progress.done),
        Text(
            f"{progress.share:.0%}  iteration {progress.done:,}/{progress.total:,}  "
            f"left {duration(progress.seconds_left)}"
        ),
    )
    return line


def _figures(progress: Progress) -> Table:
    """Label and value by row; a row whose figures were not logged is left out."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style=LABEL, no_wrap=True)
    rows.add_column()
    rows.add_row("return", _returns(progress))
    for label, text in (
        ("successes", _listed([Item("", progress.get("successes/leader"))])),
        ("env steps", Text(f"{progress.env_steps:,.0f}", style=VALUE)),
        ("steps/s", _speed(progress)),
        ("learning", _learning(progress)),
        ("KL", _listed(Item(name.replace("_", " "), value) for name, value in progress.logged("kl/").items())),
        ("time", _times(progress)),
    ):
        if text.plain:
            rows.add_row(label, text)
    return rows


def _returns(progress: Progress) -> Text:
    """The leader's return, its course, and the followers' range."""
    text = Text(f"{figure(progress.get('return/leader')):<8}", style=VALUE)
    text.append(f" {sparkline(progress.returns.values, SPARK_WIDTH)}", style="green")
    followers = [value for name, value in progress.logged("return/policy_").items() if name != "0"]
    if followers:
        text.append(f"  followers {figure(min(followers))} to {figure(max(followers))}", style=DIM)
    return text


def _speed(progress: Progress) -> Text:
    """Overall rate, then the rates of its two halves."""
    return _listed(Item(name.replace("total", ""), rate, count) for name, rate in progress.logged("fps/").items())


def _learning(progress: Progress) -> Text:
    """Figures that show whether updates are healthy."""
    return _listed(
        [
            Item("rate", progress.get("lr")),
            Item("clipped", progress.get("clip_fraction/own"), "{:.0%}".format),
            Item("gradient", progress.get("grad_norm")),
            Item("entropy", progress.get("entropy/policy_0")),
            Item("ESS", progress.get("ess")),
        ]
    )


def _times(progress: Progress) -> Text:
    """Shares of an iteration by its top-level timers."""
    spans = {name: seconds for name, seconds in progress.logged("time/").items() if "/" not in name}
    total = sum(spans.values())
    if total <= 0:
        return Text()
    shares = {name: seconds / total for name, seconds in spans.items()}
    text = _listed(Item(name, share, "{:.0%}".format) for name, share in shares.items() if share >= 0.005)
    return text.append(f"  of {total:.2f} s", style=DIM)


def _listed(items: Iterable[Item]) -> Text:
    """`name value` pairs on one line; values that are not finite are left out."""
    text = Text()
    for item in items:
        if not math.isfinite(item.value):
            continue
        text.append("  " if text.plain else "")
        text.append(f"{item.name} " if item.name else "", style=DIM)
        text.append(item.wording(item.value), style=VALUE)
    return text

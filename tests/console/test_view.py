"""Views survive missing and broken figures, and say what matters."""

import io
import math
import os
import re
import signal
from types import SimpleNamespace

import pytest
from rich.console import Console

from echelon.config import TrainConfig
from echelon.console.view import Interrupt, LiveView, NullView, PlainView, RunProgress, choose_view
from echelon.console.wording import count, duration, figure, sparkline, text_table
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import RunWriter

FULL: dict[str, float] = {"iteration": 50, "env_steps": 204_800, "lr": 5e-4, "grad_norm": 0.8, "ess": 0.84}
FULL |= {"fps/total": 45_200.0, "fps/collect": 90_000.0, "fps/update": 91_000.0, "successes/leader": 0.79}
FULL |= {"return/leader": 412.34, "return/policy_0": 412.34, "return/policy_1": 380.0, "return/policy_2": 300.0}
FULL |= {"kl/own": 0.0151, "kl/follower_pull": 0.4, "clip_fraction/own": 0.12}
FULL |= {"time/collect": 3.0, "time/update": 1.0, "time/update/forward": 0.5}
CONFIG = TrainConfig(algo="cpo", policies=6, num_envs=4096, device="cpu")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("echelon.console.view.time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def plain(progress: RunProgress, width: int = 100) -> str:
    """The dashboard as text."""
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system="standard")
    with console.capture() as captured:
        console.print(progress.panel())
    return re.sub(r"\x1b\[[\d;]*m", "", captured.get())


def test_the_dashboard_shows_what_is_logged(folder: RunFolder) -> None:
    """Missing and broken figures are left out."""
    progress = RunProgress(CONFIG, folder, 200, 0)
    for metrics in ({}, {name: math.nan for name in FULL if name != "iteration"}):
        for width in (20, 80):
            plain(progress, width)  # before the first iteration, too
            progress.update(metrics)
            assert "nan" not in plain(progress, width)
    assert progress.done == 4
    progress.update(FULL)
    text = plain(progress)
    rows = [
        "CartpoleSwingup · cpo · 6 policies · 4,096 environments · cpu",
        "25%  iteration 50/200",
        "return     412.3",
    ]
    rows += [
        "followers 300.0 to 380.0",
        "successes  0.790",
        "env steps  205 k",
        "45.2 k  collect 90.0 k  update 91.0 k",
    ]
    rows += ["rate 5.00e-04  clipped 0.120", "own 0.0151  follower pull 0.400", "collect 75%  update 25%  of 4.00 s"]
    assert [words for words in rows if words not in text] == []


def test_time_left_follows_the_pace_without_the_first_iteration(folder: RunFolder, clock: SimpleNamespace) -> None:
    """60 s of compiling, then 2 s an iteration: after 6 of 10, 8 s are left."""
    progress = RunProgress(CONFIG, folder, 10, 0)
    assert math.isnan(progress.seconds_left)
    for iteration in range(1, 7):
        clock.now += 60 if iteration == 1 else 2
        progress.update({"iteration": iteration})
    assert progress.seconds_left == 8


def test_a_resumed_run_shows_its_whole_course(folder: RunFolder) -> None:
    with RunWriter(folder) as writer:
        writer.write({"iteration": 1, "return/leader": 1.0})
        writer.write({"iteration": 2, "return/leader": math.nan})
        writer.write({"iteration": 3})
    progress = RunProgress(CONFIG, folder, 10, 3)
    progress.update({"iteration": 4, "return/leader": 4.0})
    assert [value for value in progress.returns if math.isfinite(value)] == [1.0, 4.0]
    assert "iteration 4/10" in plain(progress)


def test_lines_are_written_for_the_first_and_last_iteration_and_now_and_then(
    folder: RunFolder, clock: SimpleNamespace
) -> None:
    """An interrupted run says where it stopped, and figures that are not known are left out."""
    out = io.StringIO()
    view = PlainView(out, every=5)
    view.start(CONFIG, folder, 12, 0)
    for iteration in range(1, 13):
        clock.now += 1
        view.update({**FULL, "iteration": iteration})
    view.stop()
    lines = out.getvalue().splitlines()
    assert "CartpoleSwingup, cpo, 6 policies, 4,096 environments, cpu" in lines[0]
    assert [line.split("/")[0] for line in lines[1:]] == ["1", "6", "11", "12"]
    assert "return 412.3  successes 0.790  KL 0.0151  lr 5.00e-04" in lines[-1]
    assert out.getvalue().isascii()
    view.start(CONFIG, folder, 20, 0)
    view.update({"iteration": 1, "return/leader": math.nan})
    view.update({"iteration": 2})
    view.stop()
    view.stop()
    assert [line.split("  ")[0] for line in out.getvalue().splitlines()[6:]] == ["1/20", "2/20"]
    assert "return" not in out.getvalue().splitlines()[-1]


def test_every_view_may_be_told_anything_at_any_time(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for view in (NullView(), PlainView(), LiveView()):
        view.stop()
        view.message("before [bold]start[/bold]")
        view.update(FULL)
        view.start(CONFIG, folder, 200, 0)
        view.update(FULL)
        view.message("during [red]")
        view.stop()
        view.stop()
        said = capsys.readouterr().out
        assert isinstance(view, NullView) or {"before [bold]start[/bold]", "during [red]"} <= {*said.splitlines()}


@pytest.mark.parametrize("ignored", [True, False])
def test_under_nohup_a_run_outlives_its_terminal(ignored: bool) -> None:
    """nohup has the signal of a terminal that hangs up ignored, and so it stays; without nohup it ends the run."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with Interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupt.asked != ignored
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_gets_the_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, encoding, term, kind in (
        (True, "utf-8", "xterm", LiveView),
        (True, "utf-8", "dumb", PlainView),
        (True, "ascii", "xterm", PlainView),
        (False, "utf-8", "xterm", PlainView),
    ):
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", SimpleNamespace(isatty=lambda x=terminal: x, encoding=encoding))
            patch.setenv("TERM", term)
            assert type(choose_view()) is kind


def test_numbers_are_worded_for_people() -> None:
    durations = {0: "0 s", 59.4: "59 s", 192: "3 min 12 s", 7500: "2 h 05 min", 100_800: "1 d 04 h", -1: "-"}
    assert {seconds: duration(seconds) for seconds in durations} == durations
    counts = {0: "0", 812: "812", 999.6: "1.00 k", 45_200: "45.2 k", 1.31e6: "1.31 M", 2e10: "20.0 G", 123_456: "123 k"}
    assert {number: count(number) for number in counts} == counts
    figures = {0: "0", 0.0151: "0.0151", 0.009999: "0.0100", 0.79: "0.790", 3.14159: "3.14", 412.34: "412.3"}
    figures |= {-12345.6: "-12,346", 2e-5: "2.00e-05", 3e8: "3.00e+08", math.inf: "-"}
    assert {number: figure(number) for number in figures} == figures
    assert {wording(math.nan) for wording in (duration, count, figure)} == {"-"}
    # Sparklines show the course in the width there is.
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 7, 7], 2) == "▁█"
    assert sparkline([3, 3, math.nan], 8) == "▁▁"
    assert sparkline([], 8) == ""
    assert sparkline([0.0] * 50_000 + [7.0] * 50_000, 8) == "▁▁▁▁████"
    assert len(sparkline(range(1000), 32)) == 32


def test_tables_fold_inside_their_last_column(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a", "12", "one two three four five six"), ("long name", "3", "[bold]")]
    assert text_table(rows, right=(1,)) == "  a          12  one two three four five six\n  long name   3  [bold]\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((32, 24)))
    lines = text_table(rows, ("name", "n", "text"), right=(1,)).splitlines()
    assert lines[0].split() == ["name", "n", "text"]
    assert lines[2:] == ["                 four five six", "  long name   3  [bold]"]

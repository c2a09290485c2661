"""What a grid knows of its cells from their folders, and how it shows it."""

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from echelon.config import TrainConfig
from echelon.grid.cells import Cell, expected_seconds, pace
from echelon.grid.progress import GridProgress, PlainGridView, grid_table, trained_share


def make_cell(
    folder: Path, task: str = "A", algo: str = "cpo", seed: int = 0, done: int = 0, seconds: float = 1.0
) -> Cell:
    """A cell of 50 iterations, `done` of which are trained and saved, `seconds` each."""
    path = folder / f"{task}-{algo}-s{seed}"
    config = TrainConfig(task=task, algo=algo, seed=seed, iterations=50, out=str(path))
    if done:
        (path / "checkpoints" / f"{done:08d}").mkdir(parents=True)
        lines = [{"iteration": i, "wall_s": i * seconds, "return/leader": 2.5 * i} for i in range(1, done + 1)]
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Cell(path.name, config)


def test_a_cell_is_done_when_its_last_state_is_saved(tmp_path: Path) -> None:
    assert not make_cell(tmp_path).done
    assert not make_cell(tmp_path, seed=1, done=49).done
    assert make_cell(tmp_path, seed=2, done=50).done
    assert make_cell(tmp_path, seed=3, done=60).done  # it was once asked for more
    half = make_cell(tmp_path, seed=4, done=49)
    (half.path / "checkpoints" / ".saving-00000050").mkdir()
    (half.path / "checkpoints" / "00000050.replaced").mkdir()
    assert not half.done


def test_the_newest_line_is_the_last_whole_one(tmp_path: Path) -> None:
    cell = make_cell(tmp_path, done=7)
    assert cell.newest()["iteration"] == 7
    with (cell.path / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 8, "wal')
    assert cell.newest()["iteration"] == 7
    assert make_cell(tmp_path, seed=1).newest() == {}


def test_the_time_a_cell_takes(tmp_path: Path) -> None:
    """By its own pace; else by cells of the same task and algorithm, else of the same task, else by any."""
    assert pace(make_cell(tmp_path, done=10, seconds=2.0)) == 100.0
    assert math.isnan(pace(make_cell(tmp_path, seed=1)))
    new = make_cell(tmp_path, seed=9)
    same, task, any_ = make_cell(tmp_path, seed=2), make_cell(tmp_path, algo="ppo"), make_cell(tmp_path, task="B")
    assert expected_seconds(new, [(same, 10.0), (same, 20.0), (task, 50.0), (any_, 90.0)]) == 15.0
    assert expected_seconds(new, [(same, math.nan), (task, 50.0), (any_, 90.0)]) == 50.0
    assert expected_seconds(new, [(any_, 90.0)]) == 90.0
    assert math.isnan(expected_seconds(new, []))


def test_progress_counts_and_estimates(tmp_path: Path) -> None:
    """Done in 50 s; half of the running one is left, 25 s; of the two others one failed, one is left, 50 s."""
    cells = [make_cell(tmp_path, seed=seed, done=done) for seed, done in enumerate((50, 25, 0, 0))]
    progress = GridProgress(cells)
    assert [progress.state(cell) for cell in cells] == ["done", "left", "left", "left"]
    progress.running = [cells[1]]
    progress.failed = {cells[2].name: "it broke"}
    assert [progress.state(cell) for cell in cells] == ["done", "running", "failed", "left"]
    assert trained_share(cells[1]) == 0.5
    assert progress.seconds_left == pytest.approx(75.0)
    assert progress.headline() == "1 of 4 done, 1 failed, 1 running, 1 left, time left 1 min 15 s"
    assert progress.running_lines() == ["A-cpo-s1:  50%  return 62.5"]


def test_several_workers_share_what_is_left(tmp_path: Path) -> None:
    """Half of two cells, 25 s each, and a whole one, 50 s, between two workers."""
    cells = [make_cell(tmp_path, seed=seed, done=done) for seed, done in enumerate((50, 25, 25, 0))]
    progress = GridProgress(cells, workers=2)
    progress.running = cells[1:3]
    assert progress.seconds_left == pytest.approx(50.0)
    assert len(progress.running_lines()) == 2


def test_a_cell_that_failed_before_and_is_done_now_is_done(tmp_path: Path) -> None:
    cells = [make_cell(tmp_path)]
    progress = GridProgress(cells)
    progress.failed = {cells[0].name: "it broke"}
    progress.finish(cells[0])
    assert progress.state(cells[0]) == "done"


def test_the_table_has_a_mark_per_seed(tmp_path: Path) -> None:
    cells = [
        make_cell(tmp_path, algo=algo, seed=seed, done=50 * (seed == 0)) for seed in (0, 1) for algo in ("ppo", "cpo")
    ]
    progress = GridProgress(cells)
    progress.running, progress.failed = [cells[2]], {cells[3].name: "it broke"}
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(grid_table(progress))
    text = console.export_text()
    (row,) = [line for line in text.splitlines() if "A  " in line and "✓" in line]
    assert row.split()[1:] == ["A", "✓", "●", "✓", "✗", "│"]
    assert "2 of 4 done, 1 failed, 1 running, 0 left" in text


def test_lines_are_plain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainGridView(GridProgress([make_cell(tmp_path)]))
    view.begin()
    view.tick()
    view.stop()
    line = "0 of 1 done, 0 running, 1 left, time left -\n"
    assert capsys.readouterr().out == line * 2

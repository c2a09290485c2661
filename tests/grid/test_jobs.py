"""What a grid reads about its jobs from their folders, and how it shows it."""

import io
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from echelon.config import TrainConfig
from echelon.console.view import PlainView
from echelon.grid import Job, local
from echelon.grid.runner import Grid
from echelon.runs.evaluations import Evaluation, PolicyScore, write_evaluation


def make_job(folder: Path, task: str = "A", algo: str = "cpo", seed: int = 0, done: int = 0) -> Job:
    """A job of 50 iterations, `done` of which are trained and saved."""
    path = folder / f"{task}-{algo}-s{seed}"
    if done:
        (path / "checkpoints" / f"{done:08d}").mkdir(parents=True)
        lines = [{"iteration": i, "return/leader": 2.5 * i} for i in range(1, done + 1)]
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Job(path.name, TrainConfig(task=task, algo=algo, seed=seed, iterations=50, out=str(path)))


def test_a_job_is_done_when_its_last_state_is_saved_and_evaluated(tmp_path: Path) -> None:
    assert not make_job(tmp_path).done
    assert not make_job(tmp_path, seed=1, done=49).done
    assert make_job(tmp_path, seed=2, done=50).done
    assert make_job(tmp_path, seed=3, done=60).done  # it was once asked for more
    half = make_job(tmp_path, seed=4, done=49)
    (half.path / "checkpoints" / ".saving-00000050").mkdir()
    (half.path / "checkpoints" / "00000050.replaced").mkdir()
    assert not half.done
    job = replace(make_job(tmp_path, seed=5, done=50), evaluate=True)
    returns = {"deterministic": 7.5, "sampled": 2.0}
    scores = tuple(PolicyScore(1, mode, 3, mean, 0.0, 9.0, 0.0) for mode, mean in returns.items())
    for iteration, text in ((50, "{"), (25, ""), (50, "")):
        assert job.trained
        assert not job.done
        write_evaluation(
            Evaluation("Hopper", "cpo", iteration, 0, 1000, scores, leader=1), job.path / "evaluation.json"
        )
        if text:
            (job.path / "evaluation.json").write_text(text)
    assert job.done
    assert job.score() == 7.5
    with (job.path / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 51, "wal')
    assert job.newest()["iteration"] == 50  # the last whole line
    assert make_job(tmp_path, seed=9).newest() == {}


def test_the_line_says_how_far_a_grid_is(tmp_path: Path) -> None:
    """In 30 s the running job went from iteration 10 to 25 of 50. So its other 25, and the 50 of the one that is left,
    take 150 s. Then that one fails, and is done by a later try."""
    now = 0.0
    jobs = [make_job(tmp_path, seed=seed, done=done) for seed, done in enumerate((50, 10, 0))]
    grid = Grid(jobs, lambda: now)
    out = io.StringIO()
    view = PlainView(out, every=30)
    view.show(grid)
    view.tick()
    assert out.getvalue() == "1 of 3 done, 0 running, 2 left, time left -\n"
    view.stop()
    view.stop()
    assert out.getvalue().count("\n") == 2
    grid.running[jobs[1].name] = "node3"
    make_job(tmp_path, seed=1, done=25)
    now = 30.0
    assert grid.line() == (
        "A-cpo-s1 on node3:  50%  return 62.5  (1 of 3 done, 1 running on 1 node, 1 left, time left 2 min 30 s)"
    )
    grid.failed[jobs[2].name] = "it broke"
    assert [grid.state(job) for job in jobs] == ["done", "running", "failed"]
    grid.done.add(jobs[2].name)
    assert grid.state(jobs[2]) == "done"


@pytest.mark.parametrize("width", [40, 80])
def test_the_table_has_a_mark_per_seed(tmp_path: Path, width: int) -> None:
    cases = [(algo, seed) for seed in (0, 1) for algo in ("ppo", "cpo")]
    jobs = [make_job(tmp_path, algo=algo, seed=seed, done=50 * (seed == 0)) for algo, seed in cases]
    grid = Grid(jobs)
    grid.running, grid.failed = {jobs[2].name: ""}, {jobs[3].name: "it broke"}
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(grid.panel())
    text = console.export_text()
    (row,) = [line for line in text.splitlines() if "A  " in line and "✓" in line]
    assert row.split()[1:] == ["A", "✓", "●", "✓", "✗", "│"]
    assert "2 of 4 done, 1 failed" in text


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_workers_share_cores_or_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Five cores or three GPUs for two workers: none in common. By default one per two cores, or one per GPU."""
    given: list[tuple[str, list[int]]] = []
    both = threading.Barrier(2)
    monkeypatch.setattr(local, "train_job", lambda *_, gpu, cores: given.append((gpu, cores)) or both.wait())
    monkeypatch.setattr(local, "visible_cores", lambda: [0, 1, 2, 3, 6])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    assert local.default_workers(device) == {"cpu": 2, "cuda": 3}[device]
    pool = local.LocalPool(workers=2)
    job = make_job(tmp_path)
    job = replace(job, config=replace(job.config, device=device))
    for future in [pool.submit(job, tmp_path) for _ in "ab"]:
        future.result()
    pool.stop()
    assert sorted(given) == {"cpu": [("", [0, 2, 6]), ("", [1, 3])], "cuda": [("4", []), ("6", [])]}[device]
    monkeypatch.setattr(local, "visible_cores", lambda: [])
    assert local.default_workers("cpu") == 1

"""`echelon compare` as a user meets it: mistakes, failed cells, kills."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny import PATIENCE

from echelon import cli
from echelon.commands.compare import plan_cells, read_order
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate
from echelon.evaluation.scores import write_scores
from echelon.grid import Cell, run
from echelon.grid.process import CellProcess
from echelon.grid.progress import PlainGridView
from echelon.report.csv_files import write_csv_files
from echelon.report.write import read_contents
from echelon.runs.folder import RunFolder
from echelon.runs.lock import is_held
from echelon.tasks import preset
from echelon.training.loop import train

TINY = ["--num-envs", "24", "--update.horizon", "8", "--model.hidden", "8", "--device", "cpu", "--policies", "2"]
TINY += ["--diagnostics.every", "3"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "compare needs tasks"),
        (["Hopper"], "'Hopper' stands where a flag was expected"),
        (["--tasks"], "--tasks needs a value"),
        (["--tasks", "Hoper"], "Hoper is not a task; did you mean Hopper?"),
        (
            ["--tasks", "Hopper", "--algos", "cp0"],
            "not 'cp0'; did you mean cpo?",
        ),
        (["--tasks", "Hopper", "--algos", "ppo,cpo"], "--algos takes names with spaces between them: --algos ppo cpo"),
        (["--tasks", "Hopper", "--variants", "no_pul"], "no_pul is not a variant; did you mean no_pull?"),
        (["--tasks", "Hopper", "--variants", "no_pull+xyz"], "xyz is not a variant; echelon variants lists them"),
        (["--tasks", "Hopper", "--variant", "x"], "--variant is not a flag of echelon compare; did you mean"),
        (["--tasks", "Hopper", "--algo", "cpo"], "--algo is not a flag of echelon compare; did you mean --algos?"),
        (["--tasks", "Hopper", "--seed", "1"], "--seed is not a flag of echelon compare; did you mean --seeds?"),
        (["--tasks", "Hopper", "--seeds", "0"], "--seeds takes a whole number of at least 1, not '0'"),
        (["--tasks", "Hopper", "--seeds", "²"], "--seeds takes a whole number of at least 1, not '²'"),
        (["--tasks", "Hopper", "--seeds", "1", "2"], "--seeds takes one value, not 2: 1 2"),
        (["--tasks", "Hopper", "--num-env", "64"], "--num-env is not a flag of echelon train Hopper; did you mean"),
        (["--tasks", "Hopper", "--algos", "cpo", "--num-envs", "7"], "do not split"),
        (["--tasks", "Hopper", "--algos", "ppo", "--out", "/proc/none"], "/proc/none/logs cannot be written: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compare", *arguments]) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(flag in text for flag in ("--tasks", "--algos", "--variants", "--seeds", "--out", "--score"))


def test_the_grid(tmp_path: Path) -> None:
    """Seeds outermost; --policies is for the ensembles."""
    words = ["--tasks", "CartpoleSwingup", "Hopper", "--algos=ppo", "cpo", "--seeds", "2", "--out", str(tmp_path)]
    cells = plan_cells(read_order([*words, *TINY, "--env.episode-length", "50"]))
    names = [
        f"{task}-{algo}-s{seed}" for seed in (0, 1) for task in ("CartpoleSwingup", "Hopper") for algo in ("ppo", "cpo")
    ]
    assert [cell.name for cell in cells] == names
    assert [cell.config.num_policies for cell in cells[:2]] == [1, 2]
    assert {cell.config.env for cell in cells[::4]} == {replace(preset("CartpoleSwingup").env, episode_length=50)}
    assert [(cell.config.seed, cell.path) for cell in cells[3:5]] == [
        (0, tmp_path / "Hopper-cpo-s0"),
        (1, tmp_path / "CartpoleSwingup-ppo-s1"),
    ]


def test_notes_are_said_once_for_all_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--tasks", "AllegroHand", "--algos", "cpo", "--seeds", "2", "--out", str(tmp_path), "--device", "cpu"]
    assert [cell.config.num_envs for cell in plan_cells(read_order(words))] == [384, 384]
    assert capsys.readouterr().out.count("AllegroHand, cpo: on a CPU: 384 environments instead of") == 1
    many = preset("AllegroHand").num_envs
    (named,) = plan_cells(read_order([*words, "--seeds", "1", "--num-envs", str(many)]))
    assert named.config.num_envs == many


def test_variants_are_columns_of_the_grid(tmp_path: Path) -> None:
    """Alone they stand for the algorithms; flags win over them; an algorithm that is named twice is trained once."""
    words = ["--tasks", "Hopper", "--seeds", "1", "--out", str(tmp_path), *TINY]
    names = ["cpo", "no_pull", "sapg+entropy_on"]
    cells = plan_cells(read_order([*words, "--variants", *names]))
    assert [cell.name for cell in cells] == [f"Hopper-{name}-s0" for name in names]
    assert [(cell.config.algo, cell.config.pull.beta, cell.config.update.entropy_scale) for cell in cells] == [
        ("cpo", 0.005, 0.0),
        ("cpo", 0.0, 0.0),
        ("sapg", 0.005, 0.005),
    ]
    assert {cell.config.num_policies for cell in cells} == {2}
    more = plan_cells(read_order([*words, "--algos", "ppo", "cpo", "--variants", *names]))
    assert [cell.name for cell in more] == [f"Hopper-{name}-s0" for name in ["ppo", *names]]


def test_a_cell_of_another_kind_in_the_folder_is_refused(tmp_path: Path) -> None:
    words = ["--tasks", "CartpoleSwingup", "--algos", "ppo", "--seeds", "1", "--out", str(tmp_path), *TINY]
    (cell,) = plan_cells(read_order(words))
    RunFolder.create_or_resume(cell.config).metrics.write_text("{}\n")  # the run has begun
    assert plan_cells(read_order([*words, "--env-steps", "999"]))[0].config.env_steps == 999
    with pytest.raises(UserError, match=r"update.clip is 0.2 in .* but 0.3 here"):
        plan_cells(read_order([*words, "--update.clip", "0.3"]))


def run_instead(monkeypatch: pytest.MonkeyPatch, bodies: dict[str, str]) -> None:
    """Let the process of each cell run a script."""
    popen = subprocess.Popen

    def start(command: list[str], **more: Any) -> "subprocess.Popen[bytes]":
        return popen([sys.executable, "-c", bodies[Path(command[-1]).stem]], **more)

    monkeypatch.setattr(subprocess, "Popen", start)


def test_a_cell_that_fails_is_marked_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Processes that save the last state, fail, are killed, or end without a word."""
    words = ["--tasks", "CartpoleSwingup", "--algos", "ppo", "--seeds", "5", "--out", str(tmp_path), *TINY]
    cells = plan_cells(read_order([*words, "--iterations", "4"]))
    saved = "import os; os.makedirs({!r} + '/checkpoints/00000004')"
    bodies = {
        cells[0].name: saved.format(str(cells[0].path)),
        cells[1].name: "import sys; print('no more memory'); sys.exit(3)",
        cells[2].name: "import os; os.kill(os.getpid(), 9)",
        cells[3].name: "pass",
        cells[4].name: saved.format(str(cells[4].path)) + "; 1 / 0",
    }
    run_instead(monkeypatch, bodies)
    finished: list[Cell] = []
    failed = run(cells, tmp_path / "logs", workers=2, make_view=PlainGridView, finished=finished.append)
    assert sorted(cell.name for cell in finished) == [cells[0].name, cells[4].name]
    assert failed.keys() == {cells[1].name, cells[2].name, cells[3].name}
    assert failed[cells[1].name] == "its process ended with exit code 3: no more memory"
    assert failed[cells[2].name] == "its process ended with signal SIGKILL"
    assert failed[cells[3].name].startswith("it ended before it was done; see ")
    assert "failed: its process ended with exit code 3" in capsys.readouterr().out
    bodies.clear()  # nothing may start for what is done
    finished.clear()
    assert run([cells[0], cells[4]], tmp_path / "logs", make_view=PlainGridView, finished=finished.append) == {}
    assert finished == [cells[0], cells[4]]
    assert capsys.readouterr().out == "2 of 2 done, 0 running, 0 left, time left 0 s\n" * 2


def test_two_grids_on_one_folder_do_not_fail_each_others_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both saw that nobody trained the cell, and the other was faster: its process says so, and is tried again."""
    cell = Cell("both", replace(preset("CartpoleSwingup"), iterations=4, out=str(tmp_path / "both")))
    tried = tmp_path / "tried"
    body = f"import os, sys\nif not os.path.exists({str(tried)!r}): open({str(tried)!r}, 'w'); sys.exit(75)\n"
    run_instead(monkeypatch, {"both": body + f"os.makedirs({str(cell.path / 'checkpoints/00000004')!r})"})
    assert run([cell], tmp_path / "logs", make_view=PlainGridView) == {}
    assert "both is held by another process; waiting for it" in capsys.readouterr().out


def test_the_process_of_a_cell_that_another_one_trains_says_so(tmp_path: Path) -> None:
    cell = Cell("held", replace(preset("CartpoleSwingup"), num_envs=12, device="cpu", out=str(tmp_path / "held")))
    RunFolder.create_or_resume(cell.config)
    process = CellProcess(cell, tmp_path)
    process.wait()
    assert process.held


def test_an_interrupt_lets_all_running_cells_save_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is done, which interrupts; two others wait for their standard input to close, and then take their time."""
    config = replace(preset("CartpoleSwingup"), iterations=4)
    cells = [Cell(name, replace(config, out=str(tmp_path / name))) for name in ("first", "second", "third")]
    waits = "import os, sys, time; sys.stdin.read(); time.sleep(0.2); os.makedirs({!r})"
    bodies = {cell.name: waits.format(str(cell.path / "saved")) for cell in cells[1:]}
    run_instead(
        monkeypatch, bodies | {"first": f"import os; os.makedirs({str(cells[0].path / 'checkpoints/00000004')!r})"}
    )

    def interrupt(cell: Cell) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(cells, tmp_path / "logs", workers=3, make_view=PlainGridView, finished=interrupt)
    assert all((cell.path / "saved").exists() for cell in cells[1:])


COMPARE = ["--tasks", "CartpoleSwingup", "--algos", "ppo", "cpo", "--seeds", "1", *TINY, "--iterations", "80"]
COMPARE += ["--checkpoint-every", "7"]


def compare(out: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "echelon.cli", "compare", *COMPARE, "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def wait_for_iteration(folder: Path, iteration: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        metrics = folder / "metrics.jsonl"
        if metrics.exists() and metrics.read_text().count("\n") >= iteration:
            return
        time.sleep(0.02)
    raise AssertionError(f"{folder} did not get to iteration {iteration}")


def test_killed_in_the_middle_it_ends_with_the_same_report(tmp_path: Path) -> None:
    """All tables but those of clock times are equal to the byte, and so is every metric that is no time. The whole one
    is trained here, without processes or anything to interrupt."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    cells = plan_cells(read_order([*COMPARE, "--out", str(whole)]))
    for cell in cells:
        folder = train(cell.config)
        write_scores(evaluate(folder, device="cpu"), folder.evaluation)
    contents = read_contents([cell.path for cell in cells], "return")
    write_csv_files(contents, whole / "report" / "csv")
    first = compare(killed)
    wait_for_iteration(killed / "CartpoleSwingup-cpo-s0", 10)
    first.send_signal(signal.SIGKILL)
    first.wait()
    metrics = killed / "CartpoleSwingup-cpo-s0" / "metrics.jsonl"
    ppo = (killed / "CartpoleSwingup-ppo-s0" / "metrics.jsonl").stat()
    second = compare(killed)
    said, _ = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, said
    assert "1 of 2 done" in said
    assert "CartpoleSwingup-cpo-s0 goes on" in said
    assert (killed / "CartpoleSwingup-ppo-s0" / "metrics.jsonl").stat().st_mtime_ns == ppo.st_mtime_ns
    assert re.search(r"CartpoleSwingup-cpo-s0 is done: evaluated return [\d.]+", said)
    assert "recorded CartpoleSwingup-cpo-s0" in said
    assert "EchelonReplay" in (killed / "report" / "report.html").read_text()
    document = json.loads((metrics.parent / "config.json").read_text())
    assert len(document["sessions"]) == 2
    assert document["sessions"][0]["command"][1:] == ["compare", *COMPARE, "--out", str(killed)]
    for name in ("ppo", "cpo"):
        assert timeless(whole, name) == timeless(killed, name)
    equal = {path.name for path in (whole / "report" / "csv").iterdir()} - {"wall_clock.csv", "throughput.csv"}
    assert len(equal) == 12
    for name in equal:
        assert table(whole, name) == table(killed, name), name


def table(folder: Path, name: str) -> list[str]:
    """A table's lines. Somebody may commit while this runs, and runs of two revisions differ in that."""
    lines = (folder / "report" / "csv" / name).read_text().splitlines()
    return [line for line in lines if ",revision," not in line]


def timeless(folder: Path, algo: str) -> list[dict[str, float]]:
    """A run's metrics without those that a clock made."""
    lines = (folder / f"CartpoleSwingup-{algo}-s0" / "metrics.jsonl").read_text().splitlines()
    clocks = ("wall_s", "fps/", "time/")
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(clocks)} for line in lines]


def test_a_cell_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    """It saves what it has and gives the folder back."""
    words = ["--tasks", "CartpoleSwingup", "--algos", "ppo", "--seeds", "1", "--out", str(tmp_path), *TINY]
    (cell,) = plan_cells(read_order([*words, "--iterations", "100000"]))
    process = CellProcess(cell, tmp_path)
    wait_for_iteration(cell.path, 2)
    assert is_held(cell.path)
    process.ask_to_stop()
    process.wait()
    assert process.ended()
    assert not is_held(cell.path)
    assert any((cell.path / "checkpoints").iterdir())
    assert not cell.done
    assert "exit code 130" in process.failure()

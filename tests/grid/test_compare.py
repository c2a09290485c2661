"""`echelon compare` as a user meets it: mistakes, failed runs, kills."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tiny import PATIENCE, timeless

from echelon import cli
from echelon.commands.command import parse
from echelon.commands.compare import Compare, make_jobs
from echelon.console.view import PlainView
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate
from echelon.grid import Job, run
from echelon.report.write import read_contents, write_report
from echelon.runs.evaluations import Evaluation, PolicyScore, write_evaluation
from echelon.runs.folder import RunFolder, is_held
from echelon.tasks import preset
from echelon.training.loop import train

TINY = ["--num-envs", "24", "--update.horizon", "8", "--model.hidden", "8", "--device", "cpu", "--policies", "2"]
TINY += ["--diagnostics.every", "3"]


def jobs_of(words: list[str]) -> list[Job]:
    return make_jobs(parse(Compare, "compare", words))


def test_the_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seeds outermost; --policies is for the ensembles; notes are said once for all seeds."""
    words = ["--tasks", "CartpoleSwingup", "Hopper", "--algos=ppo", "cpo", "--seeds", "2", "--out", str(tmp_path)]
    jobs = jobs_of([*words, *TINY, "--env.episode-length", "50"])
    names = [
        f"{task}-{algo}-s{seed}" for seed in (0, 1) for task in ("CartpoleSwingup", "Hopper") for algo in ("ppo", "cpo")
    ]
    assert [job.name for job in jobs] == names
    assert [job.config.num_policies for job in jobs[:2]] == [1, 2]
    assert {job.config.env for job in jobs[::4]} == {replace(preset("CartpoleSwingup").env, episode_length=50)}
    assert [(job.config.seed, job.path) for job in jobs[3:5]] == [
        (0, tmp_path / "Hopper-cpo-s0"),
        (1, tmp_path / "CartpoleSwingup-ppo-s1"),
    ]
    capsys.readouterr()
    words = ["--tasks", "AllegroHand", "--algos", "cpo", "--seeds", "2", "--out", str(tmp_path), "--device", "cpu"]
    assert [job.config.num_envs for job in jobs_of(words)] == [384, 384]
    assert capsys.readouterr().out.count("on a CPU: 384 environments instead of") == 1
    many = preset("AllegroHand").num_envs
    (named,) = jobs_of([*words, "--seeds", "1", "--num-envs", str(many)])
    assert named.config.num_envs == many


def test_variants_are_columns_of_the_grid(tmp_path: Path) -> None:
    """Alone they stand for the algorithms; flags win over them; an algorithm that is named twice is trained once."""
    words = ["--tasks", "Hopper", "--seeds", "1", "--out", str(tmp_path), *TINY]
    names = ["cpo", "no_pull", "sapg+entropy_on"]
    jobs = jobs_of([*words, "--variants", *names])
    assert [job.name for job in jobs] == [f"Hopper-{name}-s0" for name in names]
    found = [(job.config.algo, job.config.update.entropy_scale) for job in jobs]
    assert found == [("cpo", 0.0), ("cpo", 0.0), ("sapg", 0.005)]
    assert [job.config.pull.beta for job in jobs[:2]] == [0.005, 0.0]
    assert {job.config.num_policies for job in jobs} == {2}
    more = jobs_of([*words, "--algos", "ppo", "cpo", "--variants", *names])
    assert [job.name for job in more] == [f"Hopper-{name}-s0" for name in ["ppo", *names]]


def test_another_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    words = ["--tasks", "CartpoleSwingup", "--algos", "ppo", "--seeds", "1", "--out", str(tmp_path), *TINY]
    (job,) = jobs_of(words)
    RunFolder.create_or_resume(job.config).metrics.write_text("{}\n")  # the run has begun
    assert jobs_of([*words, "--env-steps", "999"])[0].config.env_steps == 999
    with pytest.raises(UserError, match=r"update.clip is 0.2 in .* but 0.3 here"):
        jobs_of([*words, "--update.clip", "0.3"])


def run_instead(monkeypatch: pytest.MonkeyPatch, bodies: dict[str, str]) -> None:
    """Let the processes of each job run a script."""
    popen = subprocess.Popen

    def start(command: list[str], **more: Any) -> Any:
        read = "import json, os, sys, time; bodies = json.loads(sys.argv[1])\n"
        script = read + "exec(bodies[json.loads(sys.stdin.readline())[0]])"
        return popen([sys.executable, "-c", script, json.dumps(bodies)], **more)

    monkeypatch.setattr(subprocess, "Popen", start)


def small_jobs(folder: Path, *names: str, evaluate: bool = False) -> tuple[list[Job], dict[str, str]]:
    """Jobs, and for each the script of a process that saves its last state."""
    config = replace(preset("CartpoleSwingup"), iterations=4, device="cpu")
    jobs = [Job(name, replace(config, out=str(folder / name)), evaluate) for name in names]
    return jobs, {job.name: f"os.makedirs({str(job.path / 'checkpoints' / '00000004')!r})" for job in jobs}


def test_a_job_that_fails_is_named_and_the_others_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Processes that save the last state, fail, are killed, end without a word, or fail after the last state."""
    jobs, bodies = small_jobs(tmp_path, "good", "full", "killed", "mute", "late")
    bodies["full"] = "print('no more memory'); sys.exit(3)"
    bodies["killed"] = "os.kill(os.getpid(), 9)"
    bodies["mute"] = "pass"
    bodies["late"] += "; 1 / 0"
    run_instead(monkeypatch, bodies)
    finished: list[Job] = []
    failed = run(jobs, tmp_path / "logs", workers=2, finished=finished.append)
    assert sorted(job.name for job in finished) == ["good", "late"]
    assert failed == {
        "full": "its process ended with exit code 3: no more memory",
        "killed": "its process ended with signal SIGKILL",
        "mute": f"it ended before it was done; see {tmp_path / 'logs' / 'mute.log'}",
    }
    said = capsys.readouterr().out
    assert "full failed: its process ended with exit code 3" in said
    assert said.endswith("2 of 5 done, 3 failed, 0 running, 0 left, time left 0 s\n")
    bodies.clear()  # nothing may start for what is done
    finished.clear()
    assert run([jobs[0], jobs[4]], tmp_path / "logs", finished=finished.append) == {}
    assert finished == [jobs[0], jobs[4]]
    assert not list((tmp_path / "logs").glob(".grid-*"))


def test_a_trained_job_is_only_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First its evaluation fails, which is tried again by the next call."""
    (job,), bodies = small_jobs(tmp_path, "one", evaluate=True)
    bodies["one"] += "  # fails where that exists"
    run_instead(monkeypatch, bodies)
    assert run([job], tmp_path / "logs") == {}
    assert "one is done, but not evaluated; see its log\n" in capsys.readouterr().out
    score = PolicyScore(0, "deterministic", 3, 3.5, 0.0, 9.0, 0.0)
    document = asdict(Evaluation("CartpoleSwingup", "cpo", 4, 96, 1000, (score,)))
    bodies["one"] = f"json.dump({document}, open({str(job.path / 'evaluation.json')!r}, 'w'))"
    assert run([job], tmp_path / "logs") == {}
    assert "one is done: evaluated return 3.50\n" in capsys.readouterr().out


def test_two_grids_on_one_folder_share_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another process trains the first job, and was faster at the second: both are tried again, after the third."""
    jobs, bodies = small_jobs(tmp_path, "locked", "taken", "free")
    tried = str(tmp_path / "tried")
    bodies["taken"] = f"if not os.path.exists({tried!r}): open({tried!r}, 'w'); sys.exit(75)\n" + bodies["taken"]
    run_instead(monkeypatch, bodies)
    monkeypatch.setattr("echelon.grid.local.is_held", lambda path: path == jobs[0].path and not jobs[2].trained)
    assert run(jobs, tmp_path / "logs", workers=1) == {}
    said = capsys.readouterr().out
    assert said.count("locked is being trained by another process; waiting for it") == 1
    assert said.count("locked starts") == 1
    assert said.count("taken is being trained by another process; waiting for it") == 1
    assert said.index("free is done") < said.index("locked is done")


def test_an_interrupt_lets_all_running_jobs_save_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is done, which interrupts; two others wait for their standard input to close, and then take their time."""
    jobs, bodies = small_jobs(tmp_path, "first", "second", "third", "fourth")
    saves = "sys.stdin.read(); time.sleep(0.2); os.makedirs({!r})"
    bodies |= {job.name: saves.format(str(job.path / "saved")) for job in jobs[1:]}
    run_instead(monkeypatch, bodies)

    def interrupt(job: Job) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(jobs, tmp_path / "logs", workers=3, view=PlainView(), finished=interrupt)
    assert all((job.path / "saved").exists() for job in jobs[1:3])


COMPARE = ["--tasks", "CartpoleSwingup", "--algos", "cpo", "--seeds", "1", *TINY, "--iterations", "40"]
COMPARE += ["--checkpoint-every", "4", "--workers", "1", "--update.mini-epochs", "1", "--env.episode-length", "50"]


def test_killed_in_the_middle_it_ends_with_the_same_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed grid leaves no orphan: its job saves and ends. Resumed, it writes the tables of a whole one, which is
    trained without processes, to the byte, and all metrics but clock times."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    (job,) = jobs_of([*COMPARE, "--out", str(whole)])
    folder = train(job.config)
    write_evaluation(evaluate(folder, device="cpu"), folder.evaluation)
    write_report(read_contents([job.path], "return"), whole / "report")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words, run = ["compare", *COMPARE, "--out", str(killed)], killed / "CartpoleSwingup-cpo-s0"
    first = subprocess.Popen([sys.executable, "-m", "echelon.cli", *words], stdout=subprocess.DEVNULL)
    wait_until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text().count("\n") >= 5)
    first.kill()
    first.wait()
    wait_until(lambda: not is_held(run))
    saved = max(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit())
    assert saved == json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["iteration"] < 40
    capsys.readouterr()
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "CartpoleSwingup-cpo-s0 resumes" in said
    assert re.search(r"CartpoleSwingup-cpo-s0 is done: evaluated return [\d.]+", said)
    assert "recorded CartpoleSwingup-cpo-s0" in said
    assert "EchelonReplay" in (killed / "report" / "index.html").read_text()
    sessions = json.loads((run / "config.json").read_text())["sessions"]
    assert len(sessions) == 2
    assert sessions[0]["command"][1:] == words
    assert timeless(job.path) == timeless(run)
    for name in ("runs.csv", "scores.csv"):
        assert (whole / "report" / name).read_bytes() == (killed / "report" / name).read_bytes(), name


def wait_until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.02)

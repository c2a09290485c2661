"""`echelon compare` as a user meets it: mistakes, failed runs, kills; what a grid reads about its jobs, and shows."""

import io
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny import PATIENCE, timeless

from echelon import cli
from echelon.commands.command import parse
from echelon.commands.compare import Compare, make_jobs
from echelon.config import TrainConfig
from echelon.console.view import PlainView
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate
from echelon.grid import Job, local, run
from echelon.grid.runner import Grid
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
    """Seeds outermost; --policies and their environments are for the ensembles; notes are said once for all seeds."""
    words = ["--tasks", "CartpoleSwingup", "Hopper", "--algos=ppo", "cpo", "--seeds", "2", "--out", str(tmp_path)]
    jobs = jobs_of([*words, *TINY, "--envs-per-policy", "16", "8", "--env.episode-length", "50"])
    columns = [f"{task}-{algo}" for task in ("CartpoleSwingup", "Hopper") for algo in ("ppo", "cpo")]
    assert [job.name for job in jobs] == [f"{column}-s{seed}" for seed in (0, 1) for column in columns]
    assert [job.config.num_policies for job in jobs[:2]] == [1, 2]
    assert {job.config.env for job in jobs[::4]} == {replace(preset("CartpoleSwingup").env, episode_length=50)}
    assert [(job.config.seed, job.path) for job in jobs] == [(int(job.name[-1]), tmp_path / job.name) for job in jobs]
    capsys.readouterr()
    words = ["--tasks", "AllegroHand", "--algos", "cpo", "--seeds", "2", "--out", str(tmp_path), "--device", "cpu"]
    assert [job.config.num_envs for job in jobs_of(words)] == [384, 384]
    assert capsys.readouterr().out.count("on a CPU: 384 environments instead of") == 1
    many = preset("AllegroHand").num_envs
    (named,) = jobs_of([*words, "--seeds", "1", "--num-envs", str(many)])
    assert named.config.num_envs == many


def test_variants_are_columns_of_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone they stand for the algorithms; flags win over them; an algorithm that is named twice is trained once. Runs
    that would be mixed up are refused."""
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
    # Another run in the folder is refused.
    words = ["--tasks", "CartpoleSwingup", "--algos", "ppo", "--seeds", "1", "--out", str(tmp_path), *TINY]
    (job,) = jobs_of(words)
    RunFolder.create_or_resume(job.config).metrics.write_text("{}\n")  # the run has begun
    assert jobs_of([*words, "--env-steps", "999"])[0].config.env_steps == 999
    (job.path / "checkpoints" / "00000009").mkdir(parents=True)
    for package in ("own", "other"):
        (tmp_path / f"{package}.py").write_text("def Reach(num_envs, device, seed): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    for flags, sentence in (
        ([*words, "--update.clip", "0.3"], r"update.clip is 0.2 in .* but 0.3 here"),
        ([*words, "--iterations", "8"], r"is at iteration 9 already, beyond the 8 that were asked for"),
        ([*words, "--algos", "ppo", "--pull.beta", "1"], "ppo does not read --pull.beta"),
        ([*words, "--algos", "ppo", "cpo", "--sac.batch", "8"], "ppo and cpo do not read --sac.batch"),
        ([*words, "--sweep", "until", "return>=1", "return>=2"], "--sweep takes no until: runs that end at different"),
        ([*words, "--sweep", "algo", "ppo", "cpo"], r"--sweep takes no algo; did you mean --algos\?"),
        ([*words, "--sweep", "seed", "1", "2"], r"--sweep takes no seed; did you mean --seeds\?"),
        ([*words, "--sweep", "out", "a", "b"], "--sweep takes no out: each run has a folder of its own"),
        ([*words, "--algos", "ppo", "--sweep", "sac.batch", "8", "9"], "ppo does not read --sac.batch; leave it out"),
        ([*words, "--tasks", "own:Reach", "other:Reach"], "two runs would be called Reach-ppo; leave one out"),
    ):
        with pytest.raises(UserError, match=sentence):
            jobs_of(flags)
    both = jobs_of([*words, "--algos", "ppo", "cpo", "--pull.beta", "1"])  # cpo reads it
    assert vars(both[1].config)["pull"].beta == 1
    mixed = jobs_of([*words, "--algos", "ppo", "sac", "--update.clip", "0.2", "--sac.warm-up", "8"])  # a flag for each
    assert (mixed[0].config.update.clip, vars(mixed[1].config)["sac"].warm_up) == (0.2, 8)


def test_a_score_that_no_task_logs_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What any of them logs is fine. What an environment from elsewhere logs is not known yet."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own.py").write_text("def Reach(num_envs, device, seed): ...\n")
    words = ["--algos", "ppo", "--seeds", "1", "--out", str(tmp_path / "out"), *TINY, "--tasks", "Hopper"]
    for score, sentence in (
        ("retrun", "--score retrun is not logged by Hopper; did you mean return?"),
        ("distanse/leader", "--score distanse/leader is not logged by Hopper; did you mean distance?"),
        ("xyz", "--score xyz is not logged by Hopper; there are return, length, distance"),
    ):
        with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
            jobs_of([*words, "--score", score])
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="successes is not logged by Hopper or CartpoleSwingup"):
        jobs_of([*words, "CartpoleSwingup", "--score", "successes"])
    for more in (
        ["--score", "distance/leader"],
        ["DeceptiveReach", "--score", "successes"],
        ["own:Reach", "--score=x"],
    ):
        assert jobs_of([*words, *more])


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


def test_the_table_has_a_mark_per_seed(tmp_path: Path) -> None:
    cases = [(algo, seed) for seed in (0, 1) for algo in ("ppo", "cpo")]
    jobs = [make_job(tmp_path, algo=algo, seed=seed, done=50 * (seed == 0)) for algo, seed in cases]
    grid = Grid(jobs)
    grid.running, grid.failed = {jobs[2].name: ""}, {jobs[3].name: "it broke"}
    for width in (40, 80):
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

"""A sweep: what is tried, what is pruned, and what a kill leaves."""

import importlib.util
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from echelon import cli
from echelon.commands.command import parse
from echelon.commands.compare import Compare, make_jobs
from echelon.commands.sweep import Sweep as SweepCommand
from echelon.config import TrainConfig
from echelon.errors import UserError
from echelon.grid import Job
from echelon.grid.runner import Grid
from echelon.report.write import read_contents
from echelon.runs.evaluations import Evaluation, PolicyScore, write_evaluation
from echelon.tasks import preset

if importlib.util.find_spec("optuna") is None:
    pytest.skip("needs pip install -e '.[sweep]'", allow_module_level=True)
from echelon.grid.sweep import Sweep, distribution

ITERATIONS = 40
OVER = {"--update.learning-rate": [1e-5, 1e-2]}
TINY = ["--num-envs", "16", "--update.horizon", "8", "--model.hidden", "8", "--device", "cpu"]


def test_what_is_drawn_from() -> None:
    """A decade and more is drawn on a log scale, whole numbers stay whole, three values or words are a list."""
    drawn = [distribution(values) for values in ([0.1, 0.3], [0.1, 1.0], [0.0, 5.0], [1, 16], ["elu", "relu"])]
    found = [(type(one).__name__[:5], getattr(one, "log", None)) for one in drawn]
    assert found == [("Float", False), ("Float", True), ("Float", False), ("IntDi", True), ("Categ", None)]


def open_sweep(folder: Path, trials: int, at_once: int = 1) -> Sweep:
    start = replace(preset("CartpoleSwingup"), algo="ppo", iterations=ITERATIONS)
    start = replace(start, update=replace(start.update, learning_rate=1e-5))

    def make(words: tuple[str, ...]) -> TrainConfig:
        flag, rate, out, path = words
        assert (flag, out) == ("--update.learning-rate", "--out")
        return replace(start, update=replace(start.update, learning_rate=float(rate)), out=path)

    given = {"trials": trials, "at_once": at_once, "score": "return", "pruner": "median"}
    return Sweep(folder, OVER, {"--update.learning-rate": 1e-5}, start, make, **given)


def pretend(job: Job, score: float, until: int = ITERATIONS) -> None:
    """Write what a run writes whose return rises to `score`."""
    job.path.mkdir(exist_ok=True)
    lines = [{"iteration": i, "return/leader": score * i / ITERATIONS} for i in range(1, until + 1)]
    (job.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if until == ITERATIONS:
        (job.path / "checkpoints" / f"{until:08d}").mkdir(parents=True)
        found = PolicyScore(0, "deterministic", 3, score, 0.0, 9.0, 0.0)
        write_evaluation(Evaluation("CartpoleSwingup", "ppo", until, 0, 1000, (found,)), job.path / "evaluation.json")


def score_of(job: Job) -> float:
    """Best at a rate of 1e-3."""
    return 100.0 - 20 * abs(np.log10(job.config.update.learning_rate) + 3)


def run_all(sweep: Sweep) -> list[Job]:
    """Let its jobs run one after the other, as a grid does; those that were left by an earlier start first."""
    grid = Grid([*sweep.jobs.values()], total=sweep.trials)
    while left := grid.in_state("left") or grid._grow(sweep.more):
        pretend(left[0], score_of(left[0]))
        grid.done.add(left[0].name)
    return grid.jobs


def test_killed_it_resumes_and_repeats_nothing(tmp_path: Path) -> None:
    """Three of seven are done and a fourth is being trained when it is killed: the same seven are tried as without the
    kill, and the rate that they find is better than the one to start from, which is the first."""
    whole = open_sweep(tmp_path / "whole", 7)
    wanted = [job.config.update.learning_rate for job in run_all(whole)]
    assert wanted[0] == 1e-5
    assert len(set(wanted)) == 7
    assert all(1e-5 <= rate <= 1e-2 for rate in wanted)

    first = open_sweep(tmp_path / "killed", 3)
    run_all(first)
    first.trials = 4
    assert [job.name for job in first.more(Grid([]))] == ["trial-003"]  # chosen, not trained
    second = open_sweep(tmp_path / "killed", 7)
    grid = Grid([*second.jobs.values()], total=7)
    assert [grid.state(job) for job in grid.jobs] == ["done"] * 3 + ["left"]
    assert grid.headline() == "3 of 7 done, 0 running, 4 left, time left -"
    assert [job.config.update.learning_rate for job in run_all(second)] == wanted
    best, rows = second.ranked()[0], second.rows({})
    assert best.value == max(score_of(job) for job in second.jobs.values()) > score_of(second.jobs[0])
    assert [int(row[0]) for row in rows[1:]] == sorted(second.jobs, key=lambda number: -score_of(second.jobs[number]))
    assert not second.more(Grid([]))
    longer = replace(preset("CartpoleSwingup"), iterations=50)
    with pytest.raises(UserError, match=r"holds another sweep: .*'iterations': 40.*; choose another --out"):
        Sweep(second.folder, OVER, {}, longer, second.make, trials=7, at_once=1, score="return", pruner="none")


def test_a_trial_below_the_median_is_pruned(tmp_path: Path) -> None:
    """Five are trained to their end, so the sixth, half as good as all of them, is stopped after the second tenth
    of the run, and one as good as they are is not."""
    sweep = open_sweep(tmp_path, 7)
    grid = Grid([], total=7)
    for _ in range(5):
        (job,) = grid._grow(sweep.more)
        pretend(job, 80.0)
        grid.done.add(job.name)
    for score, reached in ((40.0, 4), (40.0, 8), (80.0, 30)):
        job = grid.jobs[-1] if reached == 8 else grid._grow(sweep.more)[0]
        grid.running[job.name] = ""
        pretend(job, score, until=reached)
        sweep.more(grid)
        assert bool(job.pruned) == (reached == 8)
        if reached == 8:  # 40 · (5 + 6 + 7 + 8) / 4 / 40
            assert job.pruned == "pruned by the median rule: return 6.50 after 20% of it"
            grid.running.clear()
            grid.done.add(job.name)
    assert [row[-2:] for row in sweep.rows({})[1:]] == [("80.0", "")] * 5 + [("-", grid.jobs[5].pruned), ("-", "")]
    assert job.name == "trial-006"
    pretend(job, 1.0)  # far below all others, and trained to its end
    (job.path / "evaluation.json").unlink()  # which is being written
    sweep.more(grid)
    assert not job.pruned


def test_settings_that_cannot_work_are_named_and_the_others_continue(tmp_path: Path) -> None:
    sweep = open_sweep(tmp_path, 3, at_once=2)
    made = sweep.make

    def refuse(words: tuple[str, ...]) -> TrainConfig:
        if words[-1].endswith("1"):
            raise UserError("it does not fit")
        return made(words)

    sweep.make = refuse
    assert [job.name for job in sweep.more(Grid([]))] == ["trial-000", "trial-002"]
    assert sorted(row[-1] for row in sweep.rows({"trial-002": "it broke"})[1:]) == ["", "it broke", "it does not fit"]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Two trials, the second of which a pruner stops. The best command line can be typed, and a report says why."""
    monkeypatch.setattr("optuna.pruners.MedianPruner.prune", lambda self, study, trial: trial.number == 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = (
        "--iterations 120 --env.episode-length 20 --update.learning-rate 5e-4 --over update.learning-rate 1e-5 1e-2 "
    )
    words += f"--over model.activation elu tanh --trials 2 --workers 1 --out {tmp_path}"
    assert cli.main(["sweep", "CartpoleSwingup", "--algo", "ppo", *TINY, *words.split()]) == 0
    said = capsys.readouterr().out
    assert "trial-001 was pruned by the median rule: return" in said
    (line,) = (line for line in said.splitlines() if line.startswith("The best is trial 0, return "))
    command = shlex.split(line.partition(":  ")[2])
    assert command.count("--update.learning-rate") == 1
    assert command[:5] == ["echelon", "train", "CartpoleSwingup", "--algo", "ppo"]
    assert command[-4:] == ["--update.learning-rate", "0.0005", "--model.activation", "elu"]
    first, second = read_contents([tmp_path], "return").runs
    assert first.finished
    assert second.iterations < 120
    assert second.notes == [(tmp_path / "trial-001" / "pruned.txt").read_text()]
    assert "stopped after iteration" in (tmp_path / "logs" / "trial-001.log").read_text()


def test_a_sweep_of_other_values_is_another_and_starts_from_the_presets_value_or_a_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is typed; a value beyond a range is none to start from."""
    open_sweep(tmp_path, 2)
    monkeypatch.setitem(OVER, "--update.learning-rate", [1e-5, 1e-1])
    with pytest.raises(UserError, match="holds another sweep"):
        open_sweep(tmp_path, 2)
    cases: list[tuple[list[str], dict[str, object]]] = [
        (["update.learning-rate", "1e-3", "0.1e-4", "1e-4"], {"--update.learning-rate": "0.1e-4"}),
        (["update.learning-rate", "1e-6", "1e-4", "model.lstm", "16", "64"], {"--update.learning-rate": 1e-5}),
        (["update.learning-rate", "1e-4", "1e-2", "model.activation", "tanh", "elu"], {"--model.activation": "elu"}),
        (["update.clip", "0.5", "0.9"], {}),
    ]
    for over, expected in cases:
        words = ["Hopper", "--update.learning-rate", "1e-5", "--over", *over]
        assert parse(SweepCommand, "sweep", words).space()[1] == expected
    (path := tmp_path / "mine.yaml").write_text("task: Hopper\nupdate: {clip: 0.17}\n")
    words = ["--config", str(path), "--over", "update.learning-rate", "1e-4", "1e-2"]
    start = parse(SweepCommand, "sweep", words).space()[2]
    assert (start.task, start.update.clip) == ("Hopper", 0.17)


def test_a_comparison_of_listed_values(tmp_path: Path) -> None:
    """Every value of every setting with every other, by name."""
    words = ["--tasks", "Hopper", "--algos", "ppo", "--seeds", "1", "--out", str(tmp_path), *TINY]
    words += ["--sweep", "update.learning-rate", "1e-4", "1e-3", "--sweep", "model.lstm", "0", "16"]
    words += ["--update.sequence", "8"]
    jobs = make_jobs(parse(Compare, "compare", words))
    found = [(job.config.update.learning_rate, job.config.model.lstm) for job in jobs]
    assert found == [(1e-4, 0), (1e-4, 16), (1e-3, 0), (1e-3, 16)]
    assert jobs[1].name == "Hopper-ppo-learning-rate-1e-4-lstm-16-s0"
    words = ["--tasks", "Hopper", "--algos", "ppo", "sac", "--seeds", "1", "--device", "cpu", "--out", str(tmp_path)]
    jobs = make_jobs(parse(Compare, "compare", [*words, "--sweep", "update.clip", "0.1", "0.2"]))
    names = ["Hopper-ppo-clip-0.1-s0", "Hopper-ppo-clip-0.2-s0", "Hopper-sac-s0"]  # which has no clip
    assert [job.name for job in jobs] == names
    words[words.index("sac")] = "cpo"
    jobs = make_jobs(parse(Compare, "compare", [*words, "--num-envs", "192", "--sweep", "policies", "2", "4"]))
    names = ["Hopper-ppo-s0", "Hopper-cpo-policies-2-s0", "Hopper-cpo-policies-4-s0"]
    assert [job.name for job in jobs] == names


def test_a_number_of_environments_to_try_is_not_adapted_to_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one of a file, whose limit for a single run means nothing to a sweep."""
    words = ["--tasks", "Hopper", "--algos", "ppo", "--seeds", "1", "--device", "cpu", "--out", str(tmp_path)]
    jobs = make_jobs(parse(Compare, "compare", [*words, "--sweep", "num-envs", "512", "2048"]))
    assert [job.config.num_envs for job in jobs] == [512, 2048]

    made: list[TrainConfig] = []

    class Stop(Exception): ...

    def study(folder: Path, over: object, first: object, start: object, make: Any, **given: object) -> None:
        made.extend(map(make, ((), ("--num-envs", "4096"))))
        raise Stop

    monkeypatch.setattr("echelon.grid.sweep.Sweep", study)
    (path := tmp_path / "mine.yaml").write_text("task: Hopper\nnum_envs: 2048\nuntil: return>=5\n")
    with pytest.raises(Stop):
        parse(SweepCommand, "sweep", ["--config", str(path), "--over", "update.clip", "0.1", "0.2"]).run()
    assert [(config.num_envs, config.until) for config in made] == [(2048, None), (4096, None)]

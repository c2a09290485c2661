"""A plan of trainings is worked off: each leg once, whatever stopped the work before."""

import json
import runpy
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ledger import Arm, Plan, Work, command_line

from echelon import RunFolder, read_metrics
from echelon.commands.train import configure
from echelon.errors import UserError
from echelon.training.resolve import resolve

RESULTS = Path(__file__).parents[2] / "results"

TINY = ("--algo", "ppo", "--device", "cpu", "--num-envs", "16", "--update.horizon", "8", "--update.minibatches", "2")
FLAGS = (*TINY, "--env.episode-length", "8")


def plan(folder: Path, seconds: float = 1.0) -> Plan:
    arms = {
        "good": Arm("CartpoleSwingup", FLAGS, (256, 512), seconds, evaluate_every=2),
        "wrong": Arm("CartpoleSwingup", (*FLAGS, "--no-such-flag", "1"), (256,), seconds),
    }
    runs = (("wrong", 1), ("good", 1), ("good", 2))
    return Plan(folder, arms, runs, lambda run, kept: {"iterations": len(read_metrics(run.path))}, episodes=2)


def legs(of: Plan) -> list[tuple[str, int, int]]:
    return sorted((line["arm"], line["seed"], line["leg"]) for line in of.lines())


def test_each_leg_is_trained_once_and_no_leg_that_would_not_end_in_time(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    known = plan(tmp_path / "study")
    known.folder.mkdir()
    Work(known, tmp_path / "runs", minutes=0).do(["good"], together=1)
    Work(plan(known.folder, seconds=61), tmp_path / "runs", minutes=1).do(["good"], together=1)
    assert legs(known) == []
    # Seed 1 was trained on a machine whose run folders are gone.
    rows = [json.dumps({"arm": "good", "seed": 1, "leg": leg}) + "\n" for leg in (256, 512)]
    (known.folder / "ledger.jsonl").write_text("".join(rows))
    Work(known, tmp_path / "runs", minutes=10).do(["wrong", "good"], together=2)
    assert legs(known) == [("good", seed, leg) for seed in (1, 2) for leg in (256, 512)]
    said = capfd.readouterr().err
    assert said.startswith("CartpoleSwingup-wrong-s1: CalledProcessError(2, ")
    assert "--no-such-flag is not a flag of echelon train" in said
    assert not (tmp_path / "runs" / "CartpoleSwingup-good-s1").exists()
    last = known.lines()[-1]
    assert last["iterations"] == 4  # of 16 environments by 8 steps: the second leg went on where the first ended
    assert last["return"] > 0
    assert last["together"] == 2
    run = RunFolder.open(tmp_path / "runs" / "CartpoleSwingup-good-s2")
    assert (run.config.seed, run.config.env_steps) == (2, 512)
    assert (run.path / "evaluations.jsonl").read_text().count("\n") == 2
    assert (known.folder / "CartpoleSwingup-good-s2" / "metrics.csv").read_text().count("\n") == 3  # names, first, last
    before = known.lines()
    Work(known, tmp_path / "runs", minutes=10).do(["good"], together=2)
    assert known.lines() == before


def test_a_leg_that_takes_longer_than_was_thought_is_stopped_and_its_metrics_are_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    study, runs = tmp_path / "study", tmp_path / "runs"
    slow = {"slow": Arm("CartpoleSwingup", FLAGS, (10**9,), seconds=1)}
    work = Work(replace(plan(study), arms=slow, runs=(("slow", 1),)), runs, minutes=10)
    path = runs / "CartpoleSwingup-slow-s1"

    def end_when_it_learns() -> None:
        while not ((path / "metrics.jsonl").exists() and read_metrics(path)):
            time.sleep(0.1)
        work.until = 0.0

    threading.Thread(target=end_when_it_learns).start()
    work.do(["slow"], together=1)
    assert legs(work.plan) == []
    assert (study / f"{path.name}-stopped" / "metrics.csv").read_text().count("\n") > 1
    said = capfd.readouterr()
    assert "TimeoutError" in said.err
    assert f"{path.name}: {{'iterations': " in said.out
    assert list((path / "checkpoints").iterdir())


def test_whatever_fails_the_other_runs_go_on_and_a_run_that_is_not_here_takes_all_its_legs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = []

    def fail(work: Work, *run: object) -> None:
        tried.append(run)
        raise KeyError("successes")

    monkeypatch.setattr(Work, "_train", fail)
    (tmp_path / "ledger.jsonl").write_text(json.dumps({"arm": "good", "seed": 1, "leg": 256}) + "\n")
    (tmp_path / "runs" / "CartpoleSwingup-good-s2").mkdir(parents=True)
    work = Work(plan(tmp_path, seconds=40), tmp_path / "runs", minutes=1)  # the second leg of seed 1 takes 80 s
    work.do(["wrong", "good"], together=1)
    assert tried == [("wrong", 1), ("good", 2)]
    assert capsys.readouterr().err.count("KeyError('successes')") == 2


def test_it_says_what_is_known_and_that_it_needs_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["run.py", "--table"])
    command_line(plan(tmp_path), lambda known: f"{len(known.lines())} legs", "A plan.")
    assert capsys.readouterr().out == "0 legs\n"
    monkeypatch.setattr("sys.argv", ["run.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="need a CUDA GPU"):
        command_line(plan(tmp_path), lambda known: "", "A plan.")


@pytest.mark.parametrize("script", ["evidence/run.py", "noise/run.py", "off_policy/hands.py"])
def test_the_arms_of_a_plan_can_be_trained_and_its_table_printed(script: str, tmp_path: Path) -> None:
    """Their flags, before an hour of a GPU depends on them; a table of one run that is known."""
    found = runpy.run_path(str(RESULTS / script))
    known, table = found["PLAN"], found["table"]
    (arm, seed), *_ = known.runs
    line = {"arm": arm, "seed": seed, "leg": known.arms[arm].legs[-1], "successes": 7.25, "sigma": 0.4}
    line |= {"first_success": None, "reached": {}, "held": 19.3}
    (tmp_path / "ledger.jsonl").write_text(json.dumps(line) + "\n")
    rows = table(replace(known, folder=tmp_path)).splitlines()
    assert len(rows) == 2 + len(known.arms)
    assert "| 7.25 |" in rows[2]
    assert len({row.count("|") for row in rows}) == 1
    assert {arm for arm, _ in known.runs} == {*known.arms}
    for arm in known.arms.values():
        config = resolve(configure(arm.task, (*arm.flags, "--env-steps", str(arm.legs[-1]))), elsewhere="cuda").config
        assert config.num_envs == 24_576

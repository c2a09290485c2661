"""A plan of trainings is worked off: each leg once, whatever stopped the work before."""

import json
import runpy
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
        "good": Arm("CartpoleSwingup", FLAGS, (256, 512), seconds),
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
    assert capfd.readouterr().err.splitlines()[-1] == "('wrong', 1): exit code 2"
    assert not (tmp_path / "runs" / "CartpoleSwingup-good-s1").exists()
    last = known.lines()[-1]
    assert last["iterations"] == 4  # of 16 environments by 8 steps: the second leg went on where the first ended
    assert last["return"] > 0
    run = RunFolder.open(tmp_path / "runs" / "CartpoleSwingup-good-s2")
    assert (run.config.seed, run.config.env_steps) == (2, 512)
    assert (known.folder / "CartpoleSwingup-good-s2" / "metrics.csv").read_text().count("\n") == 3  # names, first, last
    before = known.lines()
    Work(known, tmp_path / "runs", minutes=10).do(["good"], together=2)
    assert known.lines() == before


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


@pytest.mark.parametrize("script", ["evidence/run.py", "off_policy/hands.py"])
def test_the_arms_of_a_plan_can_be_trained(script: str) -> None:
    """Their flags, before an hour of a GPU depends on them."""
    known = runpy.run_path(str(RESULTS / script))["PLAN"]
    assert {arm for arm, _ in known.runs} == {*known.arms}
    for arm in known.arms.values():
        config = resolve(configure(arm.task, (*arm.flags, "--env-steps", str(arm.legs[-1]))), elsewhere="cuda").config
        assert config.num_envs == 24_576

"""The plan's runs: their order, what is kept of them, how they resume, and the plan's tests."""

import csv
import json
import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import evidence
import pytest

from echelon.commands.train import configure

NAN = float("nan")
RESULTS = evidence.ROOT / "results" / "evidence"
PLAN = evidence.load(RESULTS / "plan.py").PLAN
paired = evidence.load(RESULTS / "table.py")
HEADER = (RESULTS / "ledger.csv").read_text().splitlines()[0]
TINY = evidence.Plan(
    tasks=(
        evidence.Task("CartpoleSwingup", 384, "return/leader", 1e9, "upright_late"),
    ),  # 12 environments · 16 steps · 2
    arms={"ppo": ("--algo", "ppo"), "cpo": ("--algo", "cpo")},
    comparisons=(("cpo", "ppo"),),
    seeds=(1,),
    flags=("--device", "cpu", "--num-envs", "12", "--update.horizon", "16", "--env.episode-length", "20"),
    episodes=2,
)
TWO = replace(
    TINY, tasks=(TINY.tasks[0], evidence.Task("Hopper", 100, "return/leader", 1, "error", more=False)), seeds=(1, 2)
)


def line(
    task: str, seed: int, arm: str, steps: object = "", score: object = "", status: str = "done"
) -> dict[str, str]:
    names = ("task", "seed", "arm", "threshold_env_steps", "evaluated_score", "status")
    return dict(zip(names, map(str, (task, seed, arm, steps, score, status)), strict=True))


def test_the_plan_is_complete_and_its_arms_are_what_it_says() -> None:
    assert [(task.name, seed) for task, seed in PLAN.blocks()] == [
        (task.name, seed) for seed in (101, 102, 103) for task in PLAN.tasks
    ]
    text = evidence.status(PLAN, [])
    assert "0 of 144 runs" in text
    assert "Next: AllegroHand-" in text
    assert sorted(PLAN.order(PLAN.tasks[0], 101)) == sorted(PLAN.arms)
    for task in PLAN.tasks[:2]:
        for arm in PLAN.arms:
            name, *flags = PLAN.command(task, 101, arm)
            config = configure(name, flags)
            assert (config.num_envs, config.seed, config.env_steps) == (24_576, 101, task.cap)
            paper = arm == "cpo" and task.name == "AllegroHand"
            assert config.algo != "cpo" or (config.adversary.coef > 0) == paper


def test_a_run_in_the_ledger_is_not_repeated_but_one_that_failed_once_is() -> None:
    ledger = [line("CartpoleSwingup", 1, "ppo"), line("CartpoleSwingup", 1, "cpo", status="failed")]
    ((task, seed, arm),) = TINY.left(ledger)
    assert (task.name, seed, arm) == ("CartpoleSwingup", 1, "cpo")
    assert evidence.run_name(task, 1, "cpo", ledger) == "CartpoleSwingup-cpo-s1-again"
    assert not list(TINY.left([*ledger, ledger[1]]))


def test_a_sitting_is_interrupted_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, here, carried = tmp_path / "results", tmp_path / "here", tmp_path / "carried"
    results.mkdir()
    (results / "ledger.csv").write_text(HEADER + "\n")
    task, name = TINY.tasks[0], "CartpoleSwingup-cpo-s1"
    evidence.work(evidence.Sitting(TINY, here, results, "abc", time.monotonic() + 0.1))  # before a run has begun
    assert evidence.read_ledger(results) == []
    assert "the time is up; the same command resumes" in capsys.readouterr().out

    begun = [*TINY.command(task, 1, "cpo"), "--env-steps", "192", "--out", str(tmp_path / "elsewhere" / name)]
    subprocess.run([sys.executable, "-m", "echelon", "train", *begun], check=True, capture_output=True)
    evidence.pack([tmp_path / "elsewhere" / name], carried)
    assert [path.name for path in carried.iterdir()] == [f"{name}.tar"]
    sitting = evidence.Sitting(TINY, here, results, "abc", time.monotonic() + 300)
    evidence.work(sitting, carried)
    assert f"{name} resumes" in capsys.readouterr().out
    assert not list(carried.iterdir())

    assert (results / "ledger.csv").read_text().splitlines()[0] == HEADER
    rows = {row["arm"]: row for row in evidence.read_ledger(results)}
    assert [rows[arm]["order"] for arm in TINY.order(task, 1)] == ["1", "2"]
    for row in rows.values():
        assert (row["status"], row["iterations"], row["env_steps"], row["revision"]) == ("done", "2", "384", "abc")
        assert (row["threshold_env_steps"], row["evaluated_episodes"]) == ("", "2")
        assert 0 <= float(row["evaluated_score"]) <= 1
    assert rows["cpo"]["note"] == "in 2 sessions"
    with (results / name / "metrics.csv").open() as file:
        assert [row["iteration"] for row in csv.DictReader(file)] == ["1", "2"]  # every tenth, and the last
    assert json.loads((results / name / "config.json").read_text())["config"]["algo"] == "cpo"
    before = (results / "ledger.csv").read_text()
    evidence.work(sitting)
    assert (results / "ledger.csv").read_text() == before
    plan = replace(TINY, arms={"bad": ("--num-envs", "0")}, flags=("--device", "cpu"))
    evidence.Sitting(plan, here, results, "abc", time.monotonic() + 300).train(task, 1, "bad")
    failed = evidence.read_ledger(results)[-1]
    assert (failed["arm"], failed["status"], failed["iterations"]) == ("bad", "failed", "")
    assert failed["note"].startswith("exit code 2: echelon: ")


@pytest.mark.parametrize(
    ("values", "more", "iteration"),
    [
        ([0.0] * 9 + [10.0] + [0.0] * 5, True, 10),  # 10/10 = 1
        ([20.0] + [0.0] * 8, True, None),  # no ten iterations
        ([0.0] * 10 + [5.0, 4.0, 2.0], True, 13),  # 0.5, 0.9, 1.1
        ([NAN] + [3.0] * 10, True, 11),  # nothing is known of the first
        ([2.0] * 10 + [0.0] * 5, False, 15),  # 10 of 2, then 2 less in each: 2 − 5 · 0.2 = 1
        ([0.9] * 20, True, None),
    ],
)
def test_steps_to_a_threshold(values: list[float], more: bool, iteration: int | None) -> None:
    lines = [{"score": value, "iteration": i + 1} for i, value in enumerate(values)]
    met = evidence.first_to_meet(lines, "score", 1.0, more)
    assert (met and met["iteration"]) == iteration


def test_tests_by_hand() -> None:
    assert paired.permutation_p({"a": [1.0, 2.0], "b": [3.0]}) == 0.25  # 0.5 ± 1 ± 3: only all signs alike reach 4.5
    assert paired.permutation_p({"a": [1.0, -1.0]}) == 1.0
    # Weighted 1, 1, 1, -1: sums of 2 or more have at most one sign apart from the others, 2 · (1 + 4) of 16.
    assert paired.permutation_p({"a": [1.0], "b": [1.0], "c": [1.0], "d": [-1.0]}) == 10 / 16
    assert paired.mean_of_tasks({"a": [1.0, 2.0], "b": [3.0]}) == 2.25
    assert paired.holm([0.01, 0.04, 0.03], 4) == pytest.approx(
        [0.04, 0.09, 0.09]
    )  # 4 · 0.01, 3 · 0.03, 2 · 0.04 < 0.09
    assert paired.within_arms([[1.0, 3.0], [5.0, 5.0], [7.0], []]) == 1.0  # (1 + 1 + 0 + 0 + 0)/2
    assert math.isnan(paired.within_arms([[1.0], [2.0]]))
    assert paired.interval({"a": [2.0], "b": [4.0]}) == (3.0, 3.0)


def test_a_table_of_what_is_there() -> None:
    assert paired.table(TWO, []) == "nothing yet"
    ledger = [
        line("CartpoleSwingup", seed, arm, steps, score)
        for seed, arm, steps, score in (
            (1, "ppo", "", 1.0),
            (2, "ppo", 192, 3.0),
            (1, "cpo", 96, 5.0),
            (2, "cpo", 96, 5.0),
        )
    ]
    ledger += [line("Hopper", 1, "ppo", 50, 0.1), *2 * [line("Hopper", 1, "cpo", status="failed")]]
    found = paired.outcomes(TWO, ledger)
    assert found["CartpoleSwingup", "ppo", 1] == (384, 1.0)  # censored at the cap
    assert found["Hopper", "cpo", 1] == (100, 0.1)  # failed twice: the worst there is
    by_steps = paired.differences(TWO, found, ("cpo", "ppo"), "steps")
    assert by_steps["CartpoleSwingup"] == pytest.approx([-math.log(4), -math.log(2)])
    assert by_steps["Hopper"] == pytest.approx([math.log(2)])
    # Within arms (1 + 1 + 0 + 0)/2 = 1; Hopper has no second seed.
    assert paired.differences(TWO, found, ("cpo", "ppo"), "score") == {"CartpoleSwingup": [4.0, 2.0]}
    text = paired.table(TWO, ledger)
    assert "| CartpoleSwingup | ppo | > 0.000384, 0.000192 | 1, 3 |" in text
    assert "| cpo − ppo | score, in sd | 2 | +3 (+2 to +4) | 0.5 | 1 |" in text

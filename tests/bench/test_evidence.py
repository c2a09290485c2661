"""The plan's runs: their order, what is kept of them, how they go on, and the plan's tests."""

import contextlib
import json
import math
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import evidence
import pytest
from studies import paired, planned
from studies.carrying import pack
from studies.running import ROOT, read

from echelon.console.view import NullView
from echelon.errors import UserError
from echelon.training.loop import train

NAN = float("nan")
HEADER = (ROOT / "results" / "evidence" / "ledger.csv").read_text().splitlines()[0]
TINY = planned.Plan(
    tasks=(
        planned.Task("CartpoleSwingup", 384, "return/leader", 1e9, "upright_late"),
    ),  # 12 environments · 16 steps · 2
    arms={"ppo": ("--algo", "ppo"), "cpo": ("--algo", "cpo")},
    comparisons=(("cpo", "ppo"),),
    seeds=(1,),
    flags=("--device", "cpu", "--num-envs", "12", "--update.horizon", "16", "--env.episode-length", "20"),
    episodes=2,
)
TWO = replace(
    TINY, tasks=(TINY.tasks[0], planned.Task("Hopper", 100, "return/leader", 1, "error", more=False)), seeds=(1, 2)
)


def line(
    task: str, seed: int, arm: str, steps: object = "", score: object = "", status: str = "done"
) -> dict[str, str]:
    names = ("task", "seed", "arm", "threshold_env_steps", "evaluated_score", "status")
    return dict(zip(names, map(str, (task, seed, arm, steps, score, status)), strict=True))


def test_blocks_are_in_the_order_of_the_plan() -> None:
    blocks = [(task.name, seed) for task, seed in evidence.PLAN.blocks()]
    tasks = [task.name for task in evidence.PLAN.tasks]
    assert tasks[:3] == ["AllegroHand", "Anymal", "AllegroKukaRegrasping"]
    assert blocks == [(task, seed) for seed in (101, 102, 103) for task in tasks]
    hand = evidence.PLAN.tasks[0]
    order = evidence.PLAN.order(hand, 101)
    assert sorted(order) == sorted(evidence.PLAN.arms)
    assert order != evidence.PLAN.order(hand, 102)


def test_arms_are_what_the_plan_says() -> None:
    for task, seed in evidence.PLAN.blocks()[:6]:
        for arm in evidence.PLAN.order(task, seed):
            config = planned.make_cell(evidence.PLAN, task, seed, arm, [], Path("runs")).config
            assert (config.num_envs, config.seed, config.env_steps) == (24_576, 101, task.cap)
            paper = arm == "cpo" and task.name in ("AllegroHand", "ShadowHand")
            assert config.algo != "cpo" or (config.adversary.coef > 0) == paper
            assert bool(config.model.lstm) == ("Kuka" in task.name or "Franka" in task.name)


def test_a_run_in_the_ledger_is_not_repeated_but_one_that_failed_once_is() -> None:
    ledger = [line("CartpoleSwingup", 1, "ppo"), line("CartpoleSwingup", 1, "cpo", status="failed")]
    ((task, seed, arms),) = TINY.left(ledger)
    assert (task.name, seed, arms) == ("CartpoleSwingup", 1, ["cpo"])
    assert planned.make_cell(TINY, task, 1, "cpo", ledger, Path("runs")).name == "CartpoleSwingup-cpo-s1-again"
    assert not list(TINY.left([*ledger, ledger[1]]))


class Stop(NullView):
    """Interrupts a run in its first iteration."""

    def update(self, metrics: Mapping[str, float]) -> None:
        signal.raise_signal(signal.SIGINT)


def test_a_block_is_interrupted_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, runs, carried = tmp_path / "results", tmp_path / "runs", tmp_path / "carried"
    results.mkdir()
    (results / "ledger.csv").write_text(HEADER + "\n")
    task, keeper = TINY.tasks[0], planned.Keeper(TINY, results, "abc", 2)
    evidence.train_next(TINY, runs, keeper, 1e-9)  # ends its runs before they have done anything
    assert planned.read_ledger(results) == []
    assert "stopped; the same command goes on" in capsys.readouterr().out

    cell = planned.make_cell(TINY, task, 1, "cpo", [], tmp_path / "elsewhere")
    with contextlib.suppress(KeyboardInterrupt):
        train(cell.config, Stop())
    pack([cell], carried)
    assert [path.name for path in carried.iterdir()] == ["CartpoleSwingup-cpo-s1.tar"]
    evidence.train_next(TINY, tmp_path / "here", keeper, 5, carried)
    assert "CartpoleSwingup-cpo-s1 goes on" in capsys.readouterr().out
    assert not list(carried.iterdir())

    assert (results / "ledger.csv").read_text().splitlines()[0] == HEADER
    rows = {row["arm"]: row for row in planned.read_ledger(results)}
    assert {arm: int(row["order"]) - 1 for arm, row in rows.items()} == {
        arm: i for i, arm in enumerate(TINY.order(task, 1))
    }
    for row in rows.values():
        assert (row["status"], row["iterations"], row["env_steps"], row["revision"]) == ("done", "2", "384", "abc")
        assert (row["threshold_env_steps"], row["evaluated_episodes"]) == ("", "2")
        assert 0 <= float(row["evaluated_score"]) <= 1
    assert rows["cpo"]["note"] == "2 runs at a time; in 2 sessions"
    kept = read(results / "CartpoleSwingup.csv")
    assert [row["iteration"] for row in kept if row["method"] == "cpo"] == ["1", "2"]  # every tenth, and the last
    config = json.loads((results / "settings" / "CartpoleSwingup-cpo-s1.json").read_text())["config"]
    assert config["algo"] == "cpo"
    before = (results / "ledger.csv").read_text()
    evidence.train_next(TINY, tmp_path / "here", keeper, 5)
    assert (results / "ledger.csv").read_text() == before


def test_a_failure_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "ledger.csv").write_text(HEADER + "\n")
    cell = planned.make_cell(TINY, TINY.tasks[0], 1, "ppo", [], tmp_path)
    planned.Keeper(TINY, tmp_path, "abc", 1).keep(TINY.tasks[0], 1, "ppo", cell, "it broke,\nbadly")
    (row,) = planned.read_ledger(tmp_path)
    assert (row["arm"], row["status"], row["note"], row["iterations"]) == ("ppo", "failed", "it broke, badly", "")


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
    met = planned.first_to_meet(lines, "score", 1.0, more)
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


def test_status_and_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = evidence.status(evidence.PLAN, [])
    assert "0 of 144 runs" in text
    assert "Next: AllegroHand, seed 101" in text
    assert "nan" not in text
    for words, sentence in (
        (["next", "--minutes", "0"], "--minutes must be more than 0, not 0.0"),
        (["status", "--results", str(tmp_path)], "has no ledger.csv"),
    ):
        monkeypatch.setattr("sys.argv", ["evidence.py", *words])
        with pytest.raises(UserError, match=sentence):
            evidence.main()

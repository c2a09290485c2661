"""Scripts of `benchmarks/`: two source trees in turn, trainings that stop by themselves, rates of training, a page that
names every one."""

import csv
import json
import re
import statistics
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import command
import pytest
import speed
import train_until
from before_after import compare, find, table

from echelon.errors import UserError
from echelon.tasks import preset

ROOT = Path(__file__).parents[2]
A = [{"iteration": [10.0, 12.0, 11.0], "collect": [4.0, 4.0, 4.0]}, {"iteration": [20.0, 22.0, 24.0], "collect": [8.0]}]
B = [
    {"iteration": [11.0, 13.2, 12.1], "collect": [2.0, 2.0, 2.0]},
    {"iteration": [33.0], "collect": [4.0], "new": [1.0]},
]


def test_ratios_are_of_turns_beside_each_other() -> None:
    # Medians of the turns: A 11 and 22, B 12.1 and 33. The second turn met a busier machine, on both sides.
    before, after, ratios = compare(A, B)
    assert (before, after) == (16.5, pytest.approx(22.55))
    assert ratios == [pytest.approx(1.1), pytest.approx(1.5)]
    line = table([{"case": "Task:ppo", "a": A, "b": B}]).splitlines()[-1]
    assert line == "| Task:ppo | 16.50 | 22.55 | 1.300 | 1.100 to 1.500 | collect 0.500 |"
    # The first place that a tree has is taken.
    assert find("no_such_module:median", "statistics:no_such_name", "statistics:median") is statistics.median
    with pytest.raises(ImportError, match="tell `build`"):
        find("no_such_module:median")


def test_trainings_take_flags_and_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(name: str, *words: str) -> list[str]:
        """The iterations that are kept of a training: every tenth, and the last."""
        own = ["CartpoleSwingup", "--out", str(tmp_path / "kept"), "--runs", str(tmp_path / "runs"), "--name", name]
        monkeypatch.setattr("sys.argv", ["train_until.py", *own, *words, "--device", "cpu"])
        train_until.main()
        with (tmp_path / "kept" / name / "metrics.csv").open() as file:
            return [row["iteration"] for row in csv.DictReader(file)]

    own = ["--seed", "3", "--algo", "ppo", "--until", "iteration", ">=", "2"]
    assert run("short", *own, "--", "--num-envs", "48", "--update.learning-rate", "0.002") == ["1", "2"]
    config = json.loads((tmp_path / "kept" / "short" / "config.json").read_text())["config"]
    assert (config["task"], config["algo"], config["seed"], config["num_envs"]) == ("CartpoleSwingup", "ppo", 3, 48)
    assert config["update"]["learning_rate"] == 0.002
    assert run("timed", "--algo", "ppo", "--minutes", "1e-9", "--", "--num-envs", "48") == ["1"]  # its time is up
    with pytest.raises(SystemExit) as stopped:
        command.command(lambda: run("bad", "--", "--num-envs", "0"))
    assert isinstance(stopped.value.code, str)
    assert stopped.value.code.startswith("error: ")
    assert "\n" not in stopped.value.code


def test_every_script_is_named_on_a_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").rglob("README.md")]
    text = "\n".join(page.read_text() for page in pages)
    scripts = [path for path in (ROOT / "benchmarks").rglob("*.py") if "__main__" in path.read_text()]
    scripts += (ROOT / "results").rglob("run.py")
    assert [str(path) for path in scripts if str(path.relative_to(ROOT)) not in text] == []


def line(case: str, run: int, iteration: float) -> dict[str, Any]:
    rates = {"physics_in_training": 1.6e6, "rollout": 1.5e6, "training": 1e6}
    parts = {"ms_iteration": iteration, "ms_collect": 100.0, "ms_targets": 10.0, "ms_update": 30.0}
    return {"case": case, "run": run, "num_envs": 24576} | rates | parts | {"gib": None}


def test_the_adversarial_reward_is_switched_and_the_nearest_size_that_splits_is_taken() -> None:
    """Reorientation trains on one sequence of 16 steps per environment in 8 minibatches, so each policy's block is a
    multiple of 8: 4,096 / 6 = 682.7, and 6 · 680 = 4,080 is nearer than 6 · 688 = 4,128."""
    hand, kuka = "AllegroHand", "AllegroKukaReorientation"
    cases = {(hand, None): 0.001, (hand, "on"): 0.001, (hand, "off"): 0.0, (kuka, None): 0.0, (kuka, "on"): 0.01}
    assert {case: speed.settings(case[0], "cpo", 12, case[1]).adversary.coef for case in cases} == cases
    sizes = {(kuka, "cpo", 4096): 4080, (kuka, "cpo", 4120): 4128, (kuka, "cpo", 24576): 24576}
    sizes[("CartpoleSwingup", "pbt", 13)] = 12  # six members share equally
    for (task, algo, asked), fits in sizes.items():
        assert speed.nearest_fit(replace(preset(task), algo=algo, num_envs=asked)).num_envs == fits


def test_ratios_pair_runs_and_divide_medians() -> None:
    """Run 1 of SAPG failed: 230/200 pairs with run 0 only; of the medians, (230 + 250)/2 over 200. A population at
    1.5 M steps per second, beside members that have 1.0 M each while they train."""
    rows = [
        line("AllegroHand-cpo-no-adversary", 0, 230.0),
        line("AllegroHand-sapg", 0, 200.0),
        line("AllegroHand-cpo-no-adversary", 1, 250.0),
        line("AllegroHand-ppo", 1, 100.0),
        line("AllegroHand-ppo-alone", 0, 100.0),
        line("AllegroHand-pbt", 0, 400.0) | {"training": 1.5e6},
    ]
    assert speed.ratios(rows) == [
        "* CPO's iteration over SAPG's: 1.200 (1.150)",
        "* SAPG's iteration over PPO's: 2.000 ()",
        "* steps per second of a population over those of its members one after another: 1.500 (1.500)",
    ]
    rows = [line("AllegroHand-cpo", 0, 1.0), line("AllegroHand-cpo", 1, 1.0) | {"training": 1.5e6, "gib": 6.84}]
    assert speed.table(rows).splitlines()[2] == (
        "| AllegroHand-cpo | 24,576 | 1.60, 1.60 | 1.50, 1.50 | 1.00, 1.50 | 62%, 94% "
        "| 100.0 / 10.0 / 30.0, 100.0 / 10.0 / 30.0 | -, 6.8 |"
    )


def order(case: speed.Case, num_envs: int) -> dict[str, Any]:
    fixed = {"precision": "tf32", "device": "cpu", "iterations": 2, "kernels": 0}
    return fixed | {"case": asdict(case), "num_envs": num_envs}


def test_a_case_is_measured_in_a_process_and_one_that_fails_is_no_result(tmp_path: Path) -> None:
    case = speed.Case("AllegroHand", adversary="off")
    found = command.in_a_process(speed.__file__, order(case, 12))
    assert (found["task"], found["algo"], found["adversary"], found["num_envs"]) == ("AllegroHand", "cpo", False, 12)
    assert found["ms_iteration"] > found["ms_update"] > 0
    assert found["rollout"] == pytest.approx(12 * 8 * 1000 / found["ms_collect"])
    assert 0 < found["rollout"] < found["physics_in_training"]
    assert speed.table([{"case": "one"} | found])
    (tmp_path / "fails.py").write_text("raise SystemExit('error: no such task')")
    assert command.in_a_process(str(tmp_path / "fails.py"), order(case, 12)) is None
    for wrong in (speed.Case("Foo"), speed.Case("CartpoleSwingup", "foo")):
        with pytest.raises(UserError, match=r"(?i)foo"):
            speed.measure(order(wrong, 24))


def test_a_population_without_physics_and_its_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    found = speed.measure(order(speed.Case("DeceptiveReach", "pbt", share=2), 24) | {"kernels": 1})
    assert (found["algo"], found["adversary"], found["num_envs"]) == ("pbt", False, 12)
    assert found["training"] > 0
    assert found["physics_in_training"] is None
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("USDT")]  # the profiler's own
    for part, title, longest in zip(("collect", "targets", "update"), lines[::2], lines[1::2], strict=True):
        whole = re.fullmatch(rf"DeceptiveReach {part}: ([\d.]+) ms in \d+ kernels", title)
        assert whole is not None
        assert float(whole[1]) > float(longest.split()[0]) > 0

"""Studies: their cells, what is kept of a run, their tables and their pages."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import study
from studies import methods, running
from studies.methods import STUDIES
from studies.summary import draw, table

from echelon.presets import preset

NAN = float("nan")
NO_MORE = {"flock_0.9", "flock_gae_within_0.9", "all_by_ess"}
"""Arms that were trained with settings there are no longer."""


def test_a_study_that_is_stopped_early_is_balanced() -> None:
    base = preset("Hopper")
    kind = running.Study({"a": base, "b": base}, [], [], controls={"c": base}, seeds={"a": 1, "b": 2})
    cells = running.cells(kind, ["a", "b", "c"], None, {"num_envs": 12}, Path("runs"))
    assert [cell.name for cell in cells] == ["a-s0", "b-s0", "c-s0", "b-s1", "c-s1", "c-s2", "c-s3", "c-s4"]
    assert (cells[3].config.seed, cells[3].config.num_envs, cells[3].config.out) == (1, 12, str(Path("runs/b-s1")))
    assert [cell.name for cell in running.cells(kind, ["b"], 1, {}, Path("runs"))] == ["b-s0"]


def test_every_study_has_its_results() -> None:
    """But for the one nobody has trained yet: the cartpole in three precisions."""
    missing = {name for name in STUDIES if not (running.ROOT / "results" / name / "runs.csv").exists()}
    assert missing == {"precision/CartpoleSwingup"}
    for name, kind in STUDIES.items():
        rows = running.read(running.ROOT / "results" / name / "runs.csv")
        assert {row["method"] for row in rows} - NO_MORE <= {*kind.methods, *kind.controls}, name


@pytest.mark.parametrize(
    ("name", "lines"),
    {
        "coupling_hopper": (
            "| final_ess | sapg | 5 | 0.6788 ± 0.081 |",
            "| all 5 followers nearest to the leader | cpo λ_f=0.2 | 2 of 5 |",
        ),
        "deceptive_reach": (
            "| 51.69 (46.85 to 51.74) |",
            "| the leader solves it | sapg_cpo_steps | 17 of 20 |",
            "| a policy reached the goal | ppo_cpo_steps | 8 of 20 |",
            "| cpo over sapg | 0.38 (0.20 to 0.56) | 0.47 (0.35 to 0.60) |",
        ),
        "precision/Hopper": ("| final_return/leader | tf32 | 3 | 1287 ± 40 |",),
        "pbt_recovery": ("| 148 (119 to 158.2) | 108.6, 159.4 |",),
        "quick_tasks": ("| seconds | cartpole-ppo | 5 |", "| 0.9152, 0.9866 |"),
    }.items(),
)
def test_the_tables_say_what_the_pages_say(name: str, lines: tuple[str, ...]) -> None:
    found = table(STUDIES[name], running.ROOT / "results" / name)
    assert [line for line in lines if line not in found] == []


def test_a_table_by_hand(tmp_path: Path) -> None:
    """Of 1, 2, 3, 6 the middle half is 2 and 3. A run without the figure is left out, but counts where it is a goal."""
    base = preset("Hopper")
    kind = running.Study({"a": base, "b": base}, ["x"], ["x"], goals={"solved": ("x", 2)}, pairs=[("b", "a")])
    rows = [("a", 1), ("a", 2), ("a", 3), ("a", 6), ("a", ""), ("b", 9)]
    running.append(
        tmp_path / "runs.csv",
        [{"method": method, "seed": i, "x": x, "return": x or 0, "successes": 1} for i, (method, x) in enumerate(rows)],
    )
    text = table(kind, tmp_path)
    assert "| x | a | 4 | 3 ± 2.2 | 2.5 (" in text  # (4 + 1 + 0 + 9)/3 = 2.16²
    assert ") | 1, 6 |\n| x | b | 1 | 9 ± 0 | 9 | 9, 9 |" in text
    assert "| solved | a | 3 of 5 |\n| solved | b | 1 of 1 |" in text
    assert "| b over a | 1.00 (1.00 to 1.00) | 0.50 (0.50 to 0.50) |" in text
    running.append(tmp_path / "curves.csv", [{"method": "a", "env_steps": 100, "x": 1.5}])
    draw(kind, tmp_path)
    assert (tmp_path / "curves.png").stat().st_size > 5_000


def test_a_run_is_trained_and_kept_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = replace(preset("CartpoleSwingup"), device="cpu", num_envs=12, iterations=12)
    base = replace(base, env=replace(base.env, episode_length=20))  # pyright: ignore[reportCallIssue]
    figures: Any = lambda run, folder: {"seen": run.path.name}  # noqa: E731
    kind = running.Study({"cpo": base}, ["return/leader", "lr"], [], figures=figures, episodes=2)
    cells = running.cells(kind, ["cpo"], 1, {}, tmp_path / "runs")
    for _ in range(2):
        running.train(kind, cells, tmp_path, workers=1)
    assert "1 of 1 are in" in capsys.readouterr().out
    (row,), curve = running.read(tmp_path / "runs.csv"), running.read(tmp_path / "curves.csv")
    assert (row["method"], row["seed"], row["seen"]) == ("cpo", "0", "cpo-s0")
    assert float(row["cpu_s"]) > 0.5  # torch alone takes that to load
    assert {"return", "return_sampled", "upright_late", "upright_late_sampled", "upright_late_followers_most"} <= set(
        row
    )
    steps = base.steps_per_iteration
    assert [int(point["env_steps"]) for point in curve] == [steps * (i + 1) for i in range(12)]  # a point per iteration
    last = [float(point["lr"]) for point in curve[-3:]]
    assert float(row["final_lr"]) == pytest.approx(sum(last) / 3, rel=1e-3)


def test_what_was_not_measured_is_left_empty_and_new_columns_are_added(tmp_path: Path) -> None:
    assert running.mean([{"a": 1.0}, {}, {"a": NAN}, {"a": 2.0}], "a") == "1.5"
    assert running.mean([{"a": NAN}], "a") == ""
    file = tmp_path / "rows.csv"
    running.append(file, [{"a": 1}])
    running.append(file, [{"b": 2}])
    assert running.read(file) == [{"a": "1", "b": ""}, {"a": "", "b": "2"}]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--methods", "sapgg"], "sapgg is no method of coupling_hopper, which has sapg, .*did you mean sapg"),
        (["--num-envs", "12"], "--num-envs makes it another study; give it a place by --out"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["study.py", "coupling_hopper", *words])
    with pytest.raises(study.UserError, match=sentence):
        study.main()


def test_steps_to_a_threshold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Over five iterations: 40/5 = 8 is not enough, (40 + 10)/5 = 10 is; before an episode ends nothing is known."""
    returns = (NAN, NAN, 0, 0, 0, 0, 40, 10)
    lines = [{"return/leader": value, "env_steps": 100.0 * (i + 1)} for i, value in enumerate(returns)]
    monkeypatch.setattr(methods, "read_metrics", lambda run: lines)
    run: Any = None
    assert methods.reached("return/leader", 10.0, run, tmp_path) == {"steps_to_threshold": 800}
    assert methods.reached("return/leader", 11.0, run, tmp_path) == {"steps_to_threshold": ""}


def test_the_nearest_policy_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the mean of two matrices follower 1 is at 1 from the leader and 3 from follower 2, which is at 5 and 2."""
    one = [[0.0, 9.0, 9.0], [0.5, 0.0, 2.0], [4.0, 1.0, 0.0]]
    other = [[0.0, 9.0, 9.0], [1.5, 0.0, 4.0], [6.0, 3.0, 0.0]]
    monkeypatch.setattr(methods, "read_distances", lambda run: [{"kl": one}, {"kl": other}])
    run: Any = None
    found = methods.nearest(run, tmp_path)
    assert found == {"followers_nearest_to_leader": 1, "kl_to_leader": "3", "kl_to_nearest_follower": "2.5"}


def test_the_course_of_a_run_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ("env_steps", "successes/leader", "successes/policy_1", "sigma/0", "sigma/1")
    first, second = (100.0, 0.0, 0.2, 1.0, 3.0), (200.0, 0.4, 0.0, 2.0, 5.0)
    lines = [dict(zip(names, first, strict=True)) | {"ess": 0.5}, dict(zip(names, second, strict=True))]
    monkeypatch.setattr(methods, "read_metrics", lambda run: lines)
    run: Any = None
    assert methods.course(run, tmp_path) == {
        "sigma_leader": "1.5", "sigma_followers": "4", "ess": "0.5", "first_success_steps": 100
    }  # fmt: skip

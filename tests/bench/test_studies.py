"""Studies: their cells, what is kept of a run, their tables and their pages."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import study
from studies import coupling, deceptive_reach, precision, running

from echelon.presets import preset

NAN = float("nan")


def test_a_study_that_is_stopped_early_is_balanced() -> None:
    base = preset("Hopper")
    kind = running.Study({"a": base, "b": base}, [], print, controls={"c": base}, seeds={"a": 1, "b": 2})
    cells = running.cells(kind, ["a", "b", "c"], None, {"num_envs": 12}, Path("runs"))
    assert [cell.name for cell in cells] == ["a-s0", "b-s0", "c-s0", "b-s1", "c-s1", "c-s2", "c-s3", "c-s4"]
    assert (cells[3].config.seed, cells[3].config.num_envs, cells[3].config.out) == (1, 12, str(Path("runs/b-s1")))
    assert [cell.name for cell in running.cells(kind, ["b"], 1, {}, Path("runs"))] == ["b-s0"]


def test_every_study_has_its_results() -> None:
    """But for the cartpole in three precisions, which nobody has trained yet."""
    missing = {name for name in study.STUDIES if not (running.ROOT / "results" / name / "runs.csv").exists()}
    assert missing == {"precision/CartpoleSwingup"}
    for name, kind in study.STUDIES.items():
        rows = running.read(running.ROOT / "results" / name / "runs.csv")
        assert {row["method"] for row in rows} <= {*kind.methods, *kind.controls}, name


@pytest.mark.parametrize("name", ["coupling_hopper", "deceptive_reach", "precision/Hopper", "quick_tasks"])
def test_a_page_is_written_from_the_results(name: str, tmp_path: Path) -> None:
    """The same as the one that is kept, but for the command and the machine in one line and the file of the figure."""
    results = running.ROOT / "results" / name
    for file in ("README.md", "runs.csv", "curves.csv"):
        (tmp_path / file).write_text((results / file).read_text())
    study.STUDIES[name].write(tmp_path)
    before, after = ((folder / "README.md").read_text().splitlines() for folder in (results, tmp_path))
    assert [
        a for a, b in zip(after, before, strict=True) if a != b and not a.startswith("`python benchmarks/study.py")
    ] == []
    assert name.startswith("precision") or (tmp_path / "curves.png").stat().st_size > 10_000


def test_a_run_is_trained_and_kept_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = replace(preset("CartpoleSwingup"), device="cpu", num_envs=12, iterations=12)
    figures: Any = lambda run, folder: {"seen": run.path.name}  # noqa: E731
    kind = running.Study({"cpo": base}, ["return/leader", "lr"], print, figures=figures, episodes=2)
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


@pytest.mark.parametrize(
    ("returns", "steps"),
    [
        ((0, 0, 0, 0, 50, 10, 10, 10), 500),  # (0·4 + 50)/5 = 10
        ((NAN, NAN, 0, 0, 0, 0, 50), 700),  # without episodes nothing is known
        ((50, 0, 0, 0), None),  # no full window
        ((9, 9, 9, 9, 9, 9), None),
        ((0, 0, 0, 0, 0, 40, 10), 700),  # 40/5 = 8, then (40 + 10)/5 = 10
    ],
)
def test_steps_to_a_threshold(returns: tuple[float, ...], steps: int | None) -> None:
    lines = [{"return/leader": value, "env_steps": 100.0 * (i + 1)} for i, value in enumerate(returns)]
    assert precision.steps_to(10.0, lines) == steps


def test_a_line_per_precision() -> None:
    names = ("method", "seed", "final_return/leader", "steps_to_threshold")
    values = (("tf32", "1", "1200", ""), ("fp32", "0", "1000", "900000"), ("tf32", "0", "1100", "800000"))
    rows = [dict(zip(names, row, strict=True)) for row in values]
    assert precision.page(rows, preset("Hopper")).splitlines()[-2:] == [
        "| tf32 | 1100, 1200 | 1150 ± 71 | 0.80, never |",
        "| fp32 | 1000 | 1000 ± 0 | 0.90 |",
    ]


def test_the_nearest_policy_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the mean of two matrices follower 1 is at 1 from the leader and 3 from follower 2, which is at 5 and 2."""
    one = [[0.0, 9.0, 9.0], [0.5, 0.0, 2.0], [4.0, 1.0, 0.0]]
    other = [[0.0, 9.0, 9.0], [1.5, 0.0, 4.0], [6.0, 3.0, 0.0]]
    monkeypatch.setattr(coupling, "read_distances", lambda run: [{"kl": one}, {"kl": other}])
    run: Any = None
    found = coupling.nearest(run, tmp_path)
    assert found == {"followers_nearest_to_leader": 1, "kl_to_leader": "3", "kl_to_nearest_follower": "2.5"}


def test_the_course_of_a_run_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = [
        {
            "env_steps": 100.0,
            "successes/leader": 0.0,
            "successes/policy_1": 0.2,
            "sigma/0": 1.0,
            "sigma/1": 3.0,
            "ess": 0.5,
        },
        {"env_steps": 200.0, "successes/leader": 0.4, "successes/policy_1": 0.0, "sigma/0": 2.0, "sigma/1": 5.0},
    ]
    monkeypatch.setattr(deceptive_reach, "read_metrics", lambda run: lines)
    run: Any = None
    assert deceptive_reach.course(run, tmp_path) == {
        "sigma_leader": "1.5", "sigma_followers": "4", "ess": "0.5", "first_success_steps": 100
    }  # fmt: skip


def test_scores_say_who_solves_it() -> None:
    columns = {name: np.array([51.0, 51.0]) for name in ("return", "return_sampled")}
    columns |= {"seed": np.arange(2), "successes": np.array([1.0, 0.2]), "cpu_s": np.array([3.0, 4.0])}
    columns["first_success_steps"] = np.array([100.0, NAN])
    line = deceptive_reach.scores_table({"cpo": columns}).splitlines()[-1]
    assert line == "| cpo | 51.0 (51.0 to 51.0) | 51.0 (51.0 to 51.0) | 1/2 | 1/2 | 3.5 |"

"""An evaluation as people and programs read it."""

import io
import json
import math
from pathlib import Path

from rich.console import Console

from echelon.evaluation.evaluate import headline, score_table
from echelon.runs.evaluations import Evaluation, PolicyScore, write_evaluation

EVALUATION = Evaluation(
    task="Hopper",
    algo="cpo",
    iteration=1200,
    env_steps=4_915_200,
    seed=3,
    scores=(
        PolicyScore(0, "deterministic", 64, 812.3, 12.0, 500.0, 0.02, {"successes": 3.0}),
        PolicyScore(0, "sampled", 64, 790.0, 20.0, 480.0, 0.05, {"successes": 2.5}),
        PolicyScore(1, "deterministic", 64, math.nan, math.nan, 10.0, 1.0),
    ),
)


def test_the_table_marks_the_leader_and_fits_a_terminal() -> None:
    console = Console(width=80, file=io.StringIO())
    with console.capture() as captured:
        console.print(score_table(EVALUATION))
    lines = captured.get().splitlines()
    assert lines[0].split() == ["policy", "actions", "return", "length", "ended", "early", "successes"]
    assert lines[1].split() == ["0", "leader", "deterministic", "812.3", "±", "12.0", "500.0", "2%", "3.00"]
    assert lines[3].split() == ["1", "deterministic", "-", "±", "-", "10.0", "100%", "-"]
    assert headline(EVALUATION) == "Hopper, cpo, after 1,200 iterations (4.92 M steps), 64 episodes each"


def test_json_has_every_figure_and_no_nan(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "scores.json"
    write_evaluation(EVALUATION, path)
    data = json.loads(path.read_text())
    assert data["task"] == "Hopper"
    assert data["env_steps"] == 4_915_200
    assert data["scores"][0]["extra"] == {"successes": 3.0}
    assert data["scores"][2]["return_mean"] is None
    assert "NaN" not in path.read_text()

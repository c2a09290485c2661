"""Scores in changed physics: each point is what an evaluation with that value fixed would be."""

import math
from pathlib import Path

import pytest
from tiny import tiny

from echelon.config.schema import RandomiseConfig
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate
from echelon.evaluation.robustness import robustness, verdict
from echelon.runs.evaluations import Axis, Robustness, read_robustness, write_evaluation
from echelon.training.loop import train


def test_each_value_is_scored_as_an_evaluation_with_it_would_be(tmp_path: Path) -> None:
    """Gravity from the moon's to the earth's: the last value is plain, and the first an evaluation of its own."""
    run = train(tiny("Hopper", tmp_path / "run", env={"episode_length": 15}))
    found = robustness(run, 4, ranges=RandomiseConfig(gravity=(0.2, 1.0), friction=(0.5, 1.5)))
    gravity = found.parameters["gravity"]
    assert gravity.values == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    moon = evaluate(run, 4, randomise=RandomiseConfig(gravity=(0.2, 0.2), friction=(1.0, 1.0)))
    for policy in range(3):
        assert gravity.scores[policy][-1] == found.parameters["friction"].scores[policy][2] == found.plain[policy]
        assert gravity.scores[policy][0] != found.plain[policy]
    assert [evaluate(run, 4).of("return", k) for k in range(3)] == pytest.approx(found.plain)
    write_evaluation(found, run.path / "robustness.json")
    assert read_robustness(run.path) == found
    assert [moon.of("return", k) for k in range(3)] == pytest.approx([scores[0] for scores in gravity.scores])


def test_the_most_robust_policy_is_named() -> None:
    scores = Robustness(3, 0, 8, "return", (9.0, 8.0), {"mass": Axis((0.5, 1.5), ((4.0, 6.0), (7.0, 8.0)))})
    assert (scores.mean(0), scores.mean(1), scores.best) == (5.0, 7.5, 1)
    assert verdict(scores, "runs/a").endswith("7.50 against 5.00; echelon export runs/a --policy 1 takes it along.")
    assert "export runs/a --policy 1 --checkpoint best takes" in verdict(scores, "runs/a", "best")
    fell = Robustness(3, 0, 8, "return", (9.0, 8.0), {"mass": Axis((1.0,), ((math.nan,), (7.0,)))})
    assert fell.best == 1
    equal = Robustness(3, 1, 8, "return", (9.0, 8.0), {"mass": Axis((0.5, 1.5), ((4.0, 6.0), (5.0, 5.0)))})
    assert equal.best == 1


def test_a_score_that_is_not_finite_is_written_and_read(tmp_path: Path) -> None:
    found = Robustness(3, 0, 8, "return", (math.nan,), {"mass": Axis((1.0, 2.0), ((4.0, math.nan),))})
    write_evaluation(found, tmp_path / "robustness.json")
    assert repr(read_robustness(tmp_path)) == repr(found)


COUNTS = '"iteration": 1, "episodes": 1, "score": "", "plain": [1]'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        f'{{{COUNTS}, "leader": 2}}',
        f'{{{COUNTS}, "leader": 0, "parameters": {{"mass": {{"values": [], "scores": [[]]}}}}}}',
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "robustness.json").write_text(text)
    with pytest.raises(UserError, match=r"its robustness\.json is damaged"):
        read_robustness(tmp_path)

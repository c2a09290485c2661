"""Every task trained for two iterations, resumed, and evaluated."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tasks.allegro_kuka.states import FAMILY, REORIENTATION
from tiny import tiny

from echelon.evaluation.evaluate import evaluate
from echelon.runs import checkpoint
from echelon.runs.metrics import read_metrics
from echelon.tasks import TASKS
from echelon.training.loop import train

LOGGED = {
    "DeceptiveReach": ("env/trapped", "successes/leader", "trapped_steps/leader", "closest/leader"),
    **dict.fromkeys(
        FAMILY, ("successes/leader", "lifted/leader", "fell/leader", "env/held", "env/distance", "env/tolerance")
    ),
    **dict.fromkeys(("FrankaCubePush", "FrankaCubeStack"), ("successes/leader", "env/distance", "env/lifted")),
}


@pytest.mark.parametrize("task", TASKS)
def test_two_iterations(task: str, tmp_path: Path) -> None:
    """Episodes of three steps have ended by then. What an algorithm does to a task is the same for every task."""
    lines = read_metrics(train(tiny(task, tmp_path / "run", lstm=8, env={"episode_length": 3})))
    assert [line["iteration"] for line in lines] == [1, 2]
    for name in ("return/leader", "loss/actor", "loss/critic", *LOGGED.get(task, ())):
        assert math.isfinite(lines[-1][name]), name
    assert lines[-1].get("env/quarantined", 0) == 0


def test_the_tolerance_is_in_the_checkpoint_and_evaluation_adopts_it(tmp_path: Path) -> None:
    """Everything is near at a tolerance of a kilometre: each step a success, an episode of 4, an interval of 2."""
    settings = {"tolerance": 1000.0, "target_tolerance": 1.0, "max_successes": 4, "tolerance_interval": 2}
    config = tiny(REORIENTATION, tmp_path / "run", "ppo", lstm=8, env=settings)

    def kept() -> dict[str, torch.Tensor]:
        found = checkpoint.find(folder)
        assert found is not None
        return found.state["trainer"]["env"]["kept"]

    folder = train(config)
    # Episodes of four successes have ended by the end of the 4th step; the tolerance shrinks at the 5th and 7th.
    assert kept()["tolerance"].item() == pytest.approx(810.0)
    assert torch.equal(kept()["last_successes"], torch.full((6,), 4.0))
    assert train(replace(config, iterations=3)).path == folder.path
    assert kept()["tolerance"].item() == pytest.approx(1000 * 0.9**4)

    for score in evaluate(folder, num_envs=2, device="cpu").scores:
        assert score.extra["successes"] == 4.0
        assert (score.length_mean, score.terminated) == (4.0, 1.0)
        # (1000 - 656.1) / 999 + 0.04: at the tolerance of the run, which does not shrink while it is evaluated
        assert score.extra["objective"] == pytest.approx((1000 - 656.1) / 999 + 0.04, rel=1e-4)

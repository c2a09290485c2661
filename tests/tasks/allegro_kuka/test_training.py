"""Each AllegroKuka task trained for two iterations by each algorithm, resumed, and evaluated."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tasks.allegro_kuka.states import FAMILY, REORIENTATION

from echelon.config import ModelConfig, TrainConfig
from echelon.evaluation.evaluate import evaluate
from echelon.presets import preset
from echelon.runs import checkpoint
from echelon.training.loop import train


def tiny(task: str, algo: str, out: Path, **env: object) -> TrainConfig:
    config = preset(task)
    return replace(
        config,
        algo=algo,
        policies=1 if algo == "ppo" else 3,
        num_envs=6,
        iterations=2,
        checkpoint_every=1,
        device="cpu",
        out=str(out),
        env=replace(config.env, **env),
        model=ModelConfig(hidden=(16,), lstm=8, phi_dim=2),
        update=replace(config.update, horizon=4, sequence=4, mini_epochs=1, minibatch_envs=4.0),
    )


@pytest.mark.parametrize("algo", ["ppo", "sapg", "cpo"])
@pytest.mark.parametrize("task", FAMILY)
def test_two_iterations(task: str, algo: str, tmp_path: Path) -> None:
    folder = train(tiny(task, algo, tmp_path / "run", episode_length=3))
    lines = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [1, 2]
    for name in ("successes/leader", "lifted/leader", "env/tolerance", "env/lifted", "env/reward/reach"):
        assert lines[-1][name] == lines[-1][name], name  # no NaN: episodes of three steps have ended
    assert lines[-1]["env/quarantined"] == 0
    assert lines[-1]["env/tolerance"] == pytest.approx(0.075)


def test_the_tolerance_is_in_the_checkpoint_and_evaluation_adopts_it(tmp_path: Path) -> None:
    """Everything is near at a tolerance of a kilometre: each step a success, an episode of 4, an interval of 2."""
    settings = {"tolerance": 1000.0, "target_tolerance": 1.0, "max_successes": 4, "tolerance_interval": 2}
    config = tiny(REORIENTATION, "ppo", tmp_path / "run", **settings)
    folder = train(config)
    found = checkpoint.load_newest(folder)
    assert found is not None
    env = found.state["trainer"]["env"]["kept"]
    # Episodes of four successes have ended by the end of the 4th step; the tolerance shrinks at the 5th and 7th.
    assert env["tolerance"].item() == pytest.approx(810.0)
    assert torch.equal(env["last_successes"], torch.full((6,), 4.0))
    assert train(replace(config, iterations=3)).path == folder.path
    resumed = checkpoint.load_newest(folder)
    assert resumed is not None
    assert resumed.state["trainer"]["env"]["kept"]["tolerance"].item() == pytest.approx(1000 * 0.9**4)

    for score in evaluate(folder, num_envs=2, device="cpu").scores:
        assert score.extra["successes"] == 4.0
        assert (score.length_mean, score.terminated) == (4.0, 1.0)
        # (1000 - 656.1) / 999 + 0.04: at the tolerance of the run, which does not shrink while it is evaluated
        assert score.extra["objective"] == pytest.approx((1000 - 656.1) / 999 + 0.04, rel=1e-4)

"""Runs to look at: a robot that leaves its place, a hand with a goal marker, an arm that cannot but succeed, all hardly
trained."""

import pytest
from tiny import tiny

from echelon.runs.folder import RunFolder
from echelon.training.loop import train


@pytest.fixture(scope="session")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """It may fall: hardly trained, it would not get far otherwise."""
    env = {"episode_length": 24, "min_height": -10.0, "max_pitch": 100.0}
    return train(tiny("Hopper", tmp_path_factory.mktemp("runs") / "hopper", lstm=4, env=env, iterations=1))


@pytest.fixture(scope="session")
def allegro(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    out = tmp_path_factory.mktemp("runs") / "allegro"
    return train(tiny("AllegroHand", out, env={"episode_length": 12}, iterations=1))


@pytest.fixture(scope="session")
def franka(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Wherever the cube is, it is near enough: the first step succeeds and ends the episode."""
    out = tmp_path_factory.mktemp("runs") / "franka"
    return train(tiny("FrankaCubePush", out, env={"success_distance": 10.0}, iterations=1))

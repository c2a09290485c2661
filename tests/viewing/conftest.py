"""Runs to look at: a robot that leaves its place, a hand with a goal marker, an arm that cannot but succeed, all hardly
trained."""

from pathlib import Path

import pytest
from tiny import tiny

from echelon.runs.folder import RunFolder
from echelon.training.loop import train

LYING_COUNTS = {"min_height": -10.0, "max_pitch": 100.0}
"""A hopper that may fall: hardly trained, it would not get far otherwise."""


def trained(task: str, out: Path, lstm: int = 0, **env: float) -> RunFolder:
    return train(tiny(task, out, lstm=lstm, env=env, iterations=1))


@pytest.fixture(scope="session")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return trained("Hopper", tmp_path_factory.mktemp("runs") / "hopper", lstm=4, episode_length=24, **LYING_COUNTS)


@pytest.fixture(scope="session")
def allegro(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return trained("AllegroHand", tmp_path_factory.mktemp("runs") / "allegro", episode_length=12)


@pytest.fixture(scope="session")
def franka(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Wherever the cube is, it is near enough: the first step succeeds and ends the episode."""
    return trained("FrankaCubePush", tmp_path_factory.mktemp("runs") / "franka", success_distance=10.0)

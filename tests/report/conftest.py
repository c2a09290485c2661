"""A report with everything in it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from report.synthetic import write_evaluation, write_run

from echelon.algorithms import AdversaryConfig
from echelon.report.contents import Contents
from echelon.report.write import read_contents, write_report
from echelon.runs.replays import Camera, Episode, Geom, Replay, replay_path, write_replay

ODD = "<b onclick='x'>odd & \"named\" <!--"
"""A folder's name that is no harm as text."""


@dataclass(frozen=True)
class Written:
    """A report, and what it was made of."""

    contents: Contents
    page: Path


def replay(run: str) -> Replay:
    """A ball that falls."""
    poses = np.zeros((20, 1, 7))
    poses[:, 0, 2], poses[:, 0, 3] = np.linspace(1, 0, 20), 1
    ball = Geom("sphere", (0.1, 0.0, 0.0), (1.0, 0.5, 0.0, 1.0), 0, (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    episodes = tuple(Episode(policy, ("leader", "follower 1")[policy], 5.0, 20, (ball,), poses) for policy in (0, 1))
    camera = Camera((2.0, -2.0, 1.0), (0.0, 0.0, 0.5), 45.0, None)
    return Replay(run, "Hopper", "cpo", 60, 0, 0, 0.05, ("ball",), camera, episodes)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Two tasks, one of them evaluated, three algorithms, three seeds; one run unfinished, one with an odd name, one
    folder broken."""
    root = tmp_path_factory.mktemp("runs")
    for task in ("CartpoleSwingup", "Hopper"):
        for seed in range(3):
            write_run(root, "ppo", task=task, seed=seed, iterations=60)
            write_run(root, "sapg", task=task, seed=seed, iterations=60)
            write_run(root, "cpo", task=task, seed=seed, iterations=60, adversary=AdversaryConfig(coef=0.1))
    for path in root.glob("CartpoleSwingup-*"):  # of Hopper, training returns are all there is
        write_evaluation(path, 150.0 + 7 * len(path.name) + int(path.name[-1]), 60)
    write_run(root / "more", "ppo", task="Hopper", seed=3, iterations=30, planned=60)
    odd = write_run(root / "more", "sapg", task="Hopper", seed=4, iterations=60).rename(root / "more" / ODD)
    (root / "broken").mkdir()
    (root / "broken" / "config.json").write_text("{")
    write_replay(replay("Hopper-cpo-s1"), replay_path(root / "Hopper-cpo-s1"))
    contents = read_contents([root, root / "more" / "Hopper-ppo-s3", odd], "return")
    return Written(contents, write_report(contents, root / "report"))

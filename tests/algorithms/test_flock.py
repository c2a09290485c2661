"""The example of an algorithm from outside the package: it trains by the command line, and one number by hand."""

import importlib
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from learning.iteration import small_config, small_trainer, take_apart

from echelon import cli
from echelon.algorithms import REGISTERED
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def flock(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(EXAMPLES)
    yield importlib.import_module("flock")
    del REGISTERED["flock"], sys.modules["flock"]


@pytest.mark.usefixtures("flock")
def test_it_trains_by_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "run"
    flags = ["--num-envs", "18", "--policies", "3", "--iterations", "3", "--device", "cpu", "--out", str(out)]
    flags += ["--formation.ess", "0.8"]
    assert cli.main(["train", "CartpoleSwingup", "--algo", "flock", *flags]) == 0
    assert json.loads((out / "config.json").read_text())["config"]["formation"] == {"ess": 0.8, "strength": 0.2}
    lines = read_metrics(RunFolder.open(out))
    assert len(lines) == 3
    assert {"loss/formation", "loss/leader_borrows", "distance/policy_2", "distance/error"} <= set(lines[-1])
    assert cli.main(["evaluate", str(out), "--device", "cpu", "--num-envs", "2"]) == 0


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_the_term_pulls_pushes_or_leaves_alone(flock: ModuleType, factor: float) -> None:
    """The first follower is asked for `factor` times where it stands. With e = ∓ln 2 shortened by the tolerance of 0.1,
    or nothing, its term is 0.2 · e · d/d for each of its rows: 12 steps in 6 environments."""
    config = replace(small_config("flock", 2, minibatches=1), num_envs=14, envs_per_policy=(8, 6))
    batch = take_apart(small_trainer(config), 1).batch()
    units, mean = batch.plan.blocks.units, batch.output.mean[0, 0]
    own, lent = mean[units[0] : sum(units)], mean[sum(units) :]
    sigma = batch.output.log_std[0, 0].exp()
    now = ((own - lent) / sigma).square().sum(-1).mean().item() / 2
    formation = flock.FormationConfig(ess=math.exp(-2 * now * factor))
    loss = flock.actor_loss(batch, flock.FlockTrainConfig(formation=formation))
    off = {0.5: math.log(2) - 0.1, 1.0: 0.0, 2.0: 0.1 - math.log(2)}[factor]
    assert loss.metrics["distance/policy_1"].item() == pytest.approx(now, rel=1e-5)
    assert loss.terms["formation"].item() == pytest.approx(0.2 * off * 12 * 6, rel=1e-4, abs=1e-3)

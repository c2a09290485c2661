"""Algorithms from outside the package: one that is installed, with a reward and settings of its own, which all commands
find by its entry point; and the example `flock`, which registers itself."""

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
from tiny import differing

from echelon import cli
from echelon.algorithms import REGISTERED, names, with_algorithm
from echelon.config.schema import ForeignTrainConfig
from echelon.errors import UserError
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics
from echelon.tasks import preset

CODE = '''
from dataclasses import dataclass, field
from typing import Annotated
import torch
from echelon.algorithms import Algorithm
from echelon.algorithms.ppo import own_term
from echelon.config import TrainConfig
from echelon.config.ranges import POSITIVE
from echelon.learning.objective import ActorLoss

@dataclass(frozen=True)
class DampedConfig:
    factor: Annotated[float, POSITIVE] = 0.5
    """Weight of the loss."""
    widths: tuple[int, ...] = (4, 2)
    """Nothing reads them."""

@dataclass(frozen=True)
class DampedTrainConfig(TrainConfig):
    damped: DampedConfig = field(default_factory=DampedConfig)

    @classmethod
    def why_fixed(cls, name, before, now):
        return None if name == "damped.factor" else "it is carved in stone"

class Novelty:
    def __init__(self, env, layout, config):
        self.mean = torch.zeros(env.action_dim)

    def __call__(self, rollout, model, generator):
        reward = 0.1 * (rollout.action - self.mean).square().mean(-1)
        self.mean.lerp_(rollout.action.mean((0, 1)), 0.1)
        return reward, {"novelty/reward": reward.mean()}

    def state_dict(self):
        return {"mean": self.mean.clone()}

    def load_state_dict(self, state):
        self.mean.copy_(state["mean"])

def actor_loss(batch, config):
    return ActorLoss({"own": config.damped.factor * own_term(batch, config)})

DAMPED = Algorithm("damped", actor_loss, policies=2, settings=DampedTrainConfig, extra_reward=Novelty, colour=6)
OTHER = Algorithm("other", actor_loss)
'''
POINTS = """
[echelon.algorithms]
damped = damped_package:DAMPED
broken = damped_package.missing:X
odd = damped_package:OTHER
"""
TINY = ["--num-envs", "8", "--update.horizon", "4", "--update.minibatches", "1", "--device", "cpu"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as pip leaves it, on the path; nothing is installed."""
    folder = tmp_path / "site"
    info = folder / "damped_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: damped_package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (folder / "damped_package.py").write_text(CODE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "damped_package", raising=False)
    return folder


def test_every_command_knows_it(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["train", "CartpoleSwingup", "--algo", "damped", "--damped.factor", "0.25", "--iterations", "2", *TINY]
    assert cli.main([*words, "--out", str(out)]) == 0
    assert cli.main([*words, "--iterations", "3", "--out", str(tmp_path / "whole")]) == 0
    described = json.loads((out / "config.json").read_text())
    stored = described["config"]
    assert described["colour"] == 6
    assert stored["damped"] == {"factor": 0.25, "widths": [4, 2]}
    assert not {"pull", "adversary", "pbt"} & set(stored)
    assert stored["policies"] == 2
    assert cli.main(["train", "--resume", str(out), "--iterations", "3"]) == 0
    folders = RunFolder.open(out), RunFolder.open(tmp_path / "whole")
    found, expected = (checkpoint.load(folder, "newest").state["trainer"] for folder in folders)
    for part in ("model", "optimizer", "extra_reward"):  # to the bit
        assert not differing(found[part], expected[part], part)
    assert expected["extra_reward"]["mean"].any()
    resumed = ["train", "--resume", str(out), "--iterations", "4"]
    assert cli.main([*resumed, "--damped.factor", "0.125"]) == 0
    lines = read_metrics(RunFolder.open(out))
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4]
    assert all(line["novelty/reward"] > 0 for line in lines)
    assert json.loads((out / "config.json").read_text())["changes"][0]["setting"] == "damped.factor"
    capsys.readouterr()
    assert cli.main([*resumed, "--damped.widths", "3"]) == 2
    assert "damped.widths cannot be changed" in (said := capsys.readouterr().err)
    assert "it is carved in stone" in said
    assert cli.main(["evaluate", str(out), "--num-envs", "2", "--device", "cpu"]) == 0
    assert cli.main(["export", str(out), "--out", str(tmp_path / "policy.npz")]) == 0
    # Without its package, its runs are still reported, and what cannot be done is one sentence.
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(package)])
    found = RunFolder.open(out).config
    assert isinstance(found, ForeignTrainConfig)
    assert found.foreign == {"damped": {"factor": 0.125, "widths": (4, 2)}}
    assert cli.main(["report", str(out), str(tmp_path / "whole"), "--out", str(tmp_path / "report")]) == 0
    assert "Damped" in (tmp_path / "report" / "index.html").read_text()
    capsys.readouterr()
    assert cli.main(["evaluate", str(out), "--num-envs", "2", "--device", "cpu"]) == 2
    known = "ppo, pbt, sapg, cpo, sac, distil"
    assert capsys.readouterr().err == f"echelon: the algorithm is one of {known}, not 'damped'\n"


@pytest.mark.usefixtures("package")
def test_mistakes_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert set(names()) == {"ppo", "pbt", "sapg", "cpo", "sac", "distil", "damped", "broken", "odd"}
    for words, sentence in (
        (["--algo", "dampd"], "the algorithm is one of ppo, pbt, sapg, cpo, sac, "),
        (["--algo", "damped", "--damped.factor", "0"], "--damped.factor must be above 0, not 0.0"),
        (["--algo", "damped", "--damped.fakctor", "1"], "did you mean --damped.factor?"),
        (["--algo", "damped", "--pull.beta", "1"], "--pull.beta is not a flag of echelon train Hopper"),
        (["--algo", "damped", "--variant", "no_pull"], "pull is not a setting of damped"),
        (["--algo", "broken"], "broken is installed as damped_package.missing:X, which cannot be imported: "),
        (["--algo", "odd"], "odd is installed as damped_package:OTHER, which is not an Algorithm of that name"),
    ):
        assert cli.main(["train", "Hopper", *words]) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1
    with pytest.raises(UserError, match="the algorithm is one of"):
        with_algorithm(preset("Hopper"), "nothing")


@pytest.fixture
def flock(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    yield importlib.import_module("flock")
    del REGISTERED["flock"], sys.modules["flock"]


@pytest.mark.usefixtures("flock")
def test_flock_trains_by_the_command_line(tmp_path: Path) -> None:
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
def test_the_term_of_flock_pulls_pushes_or_leaves_alone(flock: ModuleType, factor: float) -> None:
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

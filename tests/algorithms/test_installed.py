"""An algorithm of an installed package: found by its entry point, by every command, without being registered."""

import json
import sys
from pathlib import Path

import pytest

from echelon import cli
from echelon.algorithms import names, with_algorithm
from echelon.config.schema import ForeignTrainConfig
from echelon.errors import UserError
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics
from echelon.tasks import preset

CODE = '''
from dataclasses import dataclass, field
from typing import Annotated
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

def actor_loss(batch, config):
    return ActorLoss({"own": config.damped.factor * own_term(batch, config)})

DAMPED = Algorithm("damped", actor_loss, policies=2, settings=DampedTrainConfig)
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
    stored = json.loads((out / "config.json").read_text())["config"]
    assert stored["damped"] == {"factor": 0.25, "widths": [4, 2]}
    assert not {"pull", "adversary", "pbt"} & set(stored)
    assert stored["policies"] == 2
    resumed = ["train", "--resume", str(out), "--iterations", "3"]
    assert cli.main([*resumed, "--damped.factor", "0.125"]) == 0
    assert [line["iteration"] for line in read_metrics(RunFolder.open(out))] == [1, 2, 3]
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
    assert cli.main(["report", str(out), "--out", str(tmp_path / "report")]) == 0
    capsys.readouterr()
    assert cli.main(["evaluate", str(out), "--num-envs", "2", "--device", "cpu"]) == 2
    assert capsys.readouterr().err == "echelon: --algo takes one of ppo, pbt, sapg, cpo, not 'damped'\n"


@pytest.mark.usefixtures("package")
def test_mistakes_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert set(names()) == {"ppo", "pbt", "sapg", "cpo", "damped", "broken", "odd"}
    for words, sentence in (
        (["--algo", "dampd"], "--algo takes one of ppo, pbt, sapg, cpo, "),
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
    with pytest.raises(UserError, match="--algo takes one of"):
        with_algorithm(preset("Hopper"), "nothing")

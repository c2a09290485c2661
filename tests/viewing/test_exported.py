"""Exported policies are shown without a run: they do what the run's do, by a path or by a name of the repository."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from echelon.cli import main
from echelon.commands.command import POLICIES
from echelon.errors import UserError
from echelon.export.files import _numbers, open_exported
from echelon.export.numpy_policy import NumpyPolicy
from echelon.runs.folder import RunFolder
from echelon.runs.trained import Trained
from echelon.viewing.recorder import record


@pytest.mark.parametrize("ending", ["npz", "onnx"])
def test_a_file_acts_as_its_policy_does(
    hopper: RunFolder, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an LSTM, from the same start to the end of the episode, in the run's own settings of the task."""
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(hopper.path), "--policy", "1", "--out", f"hop.{ending}"]) == 0
    (there,), (here,) = record(Trained.load(hopper), "1", 5), record(open_exported(Path(f"hop.{ending}")), "leader", 5)
    assert here.length == there.length == 24
    assert here.qpos == pytest.approx(there.qpos, abs=1e-4)
    assert here.total_return == pytest.approx(there.total_return, abs=1e-3)
    assert here.series["action/2"] == pytest.approx(there.series["action/2"], abs=1e-4)
    assert not here.series["kl"].any()
    capsys.readouterr()
    assert main(["record", "--policy", f"hop.{ending}", "--format", "html", "--seed", "5"]) == 0
    assert capsys.readouterr().out.endswith("Written to hop.html\n")
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".py") == ["hop.html", f"hop.{ending}"]

    # A file is named after its folder or itself.
    (tmp_path / "v1.5").mkdir()
    monkeypatch.chdir(tmp_path / "v1.5")
    Path(f"../hop.{ending}").rename(f"policy.{ending}")
    assert open_exported(Path(f"policy.{ending}")).folder.path.name == "v1.5"


def test_what_is_no_policy_is_one_sentence_and_a_curriculum_is_where_training_left_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a state, single numbers go into the file: what all environments have in common."""
    state = {"kept": {"tolerance": torch.tensor(0.03), "goal": torch.zeros(6, 3)}, "clock": torch.zeros(6), "x": {}}
    assert _numbers(state) == {"kept": {"tolerance": pytest.approx(0.03)}}
    for name, content in (("a.npz", b"junk"), ("b.onnx", b"\x08\x01")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="is not a policy that echelon export wrote"):
            open_exported(tmp_path / name)
    np.savez(tmp_path / "old.npz", metadata=json.dumps({"inputs": {"obs": [3]}}))
    with pytest.raises(UserError, match=r"old\.npz does not say which task it is for; export it again"):
        open_exported(tmp_path / "old.npz")
    monkeypatch.setattr("echelon.commands.command.POLICIES", tmp_path)
    assert main(["play", "--policy", "Hopper"]) == 2
    assert "trained policies come with Echelon's repository, in results/policies" in capsys.readouterr().err


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that adds a policy."""
    monkeypatch.syspath_prepend(POLICIES.parents[1] / "benchmarks")
    spec = importlib.util.spec_from_file_location("add_policy", POLICIES / "add.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_policy_is_added_with_its_card(
    hopper: RunFolder, add: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add, "HERE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["add.py", str(hopper.path), "Hop", "--episodes", "3"])
    add.main()
    card = json.loads((tmp_path / "Hop" / "card.json").read_text())
    assert [path.name for path in sorted((tmp_path / "Hop").iterdir())] == ["card.json", "policy.npz"]
    assert (card["task"], card["algorithm"], card["policies"], card["episodes"]) == ("Hopper", "cpo", 3, 3)
    assert card["steps"] == 6 * 4  # environments, steps of the one iteration
    low, high = card["score"]["return"]["interval"]
    assert low < card["score"]["return"]["mean"] < high
    assert card["score"]["length"] == {"mean": 24.0, "interval": [24.0, 24.0]}


def test_weights_of_eight_bits_change_actions_by_little(
    add: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer of 64 rounded to 1/127 of each row's largest weight: some thousandths of an action."""
    rng, file = np.random.default_rng(0), tmp_path / "policy.npz"
    arrays = {"first_weight": rng.normal(size=(64, 64)), "mean_weight": 0.05 * rng.normal(size=(2, 64))}
    arrays |= {"first_bias": rng.normal(size=64), "mean_bias": np.zeros(2), "obs_mean": np.zeros(64)}
    arrays |= {"obs_std": np.full(64, 4.0), "obs_clip": np.array(5.0), "action_low": -np.ones(2)}
    arrays["action_high"] = np.ones(2)
    np.savez(file, metadata="{}", **{name: x.astype(np.float32) for name, x in arrays.items()})
    obs = rng.normal(size=(50, 64))
    before = NumpyPolicy(file)(obs)
    monkeypatch.setattr(add, "MAX_BYTES", 9_000)  # of floats there are 16 KB
    add.shrink(file)
    assert file.stat().st_size < 9_000
    worst = np.abs(NumpyPolicy(file)(obs) - before).max()
    assert 1e-5 < worst < 0.02
    monkeypatch.setattr(add, "MAX_BYTES", 1_000)
    with pytest.raises(UserError, match="has fewer than 1,000"):
        add.shrink(file)


def test_policies_of_the_repository_open() -> None:
    for card in POLICIES.glob("*/card.json"):
        facts, file = json.loads(card.read_text()), card.with_name("policy.npz")
        assert file.stat().st_size == facts["bytes"] < 5_000_000
        trained = open_exported(file)
        found = (trained.config.source or trained.config.task, trained.config.algo, trained.iteration)
        assert found == (facts["task"], facts["algorithm"], facts["iterations"])
        assert facts["score"]["return"]["interval"][0] <= facts["score"]["return"]["mean"]
        assert facts["revision"]

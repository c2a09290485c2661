"""Simulations that went wrong are kept, a few of them, and can be played again."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import Browser, browser
from tiny import tiny

from echelon.cli import main
from echelon.envs.contract import Env
from echelon.runs.folder import RunFolder
from echelon.sim.contract import MAX_SPEED
from echelon.sim.faults import MAX_FAULTS
from echelon.tasks import make
from echelon.training.loop import train
from echelon.viewing.faults import replay_faults

__all__ = ["browser"]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """In the fifth step, in the second iteration, environment 3 is thrown: of policy 1, of three with two each."""
    config = tiny("Hopper", tmp_path_factory.mktemp("runs") / "hopper")

    def throwing(num_envs: int, device: torch.device, seed: int) -> Env:
        env = make("Hopper", config.env, num_envs, device, seed, spread_clocks=True)
        step, left = env.step, 5

        def stepped(action: torch.Tensor) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                env.engine.qvel[3] = 2 * MAX_SPEED
            return step(action)

        env.step = stepped
        return env

    return train(config, make_env=throwing)


def test_the_state_before_the_step_is_kept(faulty: RunFolder) -> None:
    (fault,) = json.loads((faulty.path / "diagnostics" / "faults.json").read_text())
    assert (fault["iteration"], fault["environment"], fault["policy"]) == (2, 3, 1)
    assert fault["qvel"] == [2 * MAX_SPEED] * len(fault["qvel"])
    assert np.isfinite(fault["qpos"]).all()
    assert len(fault["ctrl"]) == 3


def test_it_goes_wrong_again_and_is_shown(
    faulty: RunFolder, capsys: pytest.CaptureFixture[str], browser: Browser
) -> None:
    assert main(["replay-fault", str(faulty.path)]) == 0
    said = capsys.readouterr().out
    assert "iteration 2, environment 3, policy 1: goes wrong again in substep 1 of" in said
    page_file = faulty.path / "diagnostics" / "faults.html"
    assert str(page_file) in said
    with browser.page(page_file) as page:
        page.wait_for("document.querySelector('canvas')")
        assert page.errors == []
        assert "iteration 2, environment 3" in page.evaluate("document.body.innerText")


def test_a_run_without_faults_says_so(hopper: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay-fault", str(hopper.path)]) == 2
    assert "has no simulation on record that went wrong" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[", "{}", "[1]", '[{"iteration": 1}]', '[{"iteration": "x", "qpos": [1]}]'])
def test_a_file_that_somebody_changed_is_one_sentence(
    faulty: RunFolder, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.create_or_resume(replace(faulty.config, out=str(tmp_path / "run")))
    (folder.path / "diagnostics").mkdir()
    (folder.path / "diagnostics" / "faults.json").write_text(text)
    assert main(["replay-fault", str(folder.path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_only_the_first_are_kept_in_order() -> None:
    """Ten of twelve at once, and two in the step before: the two, then the first six of the ten."""
    env = make("Hopper", tiny("Hopper", Path("unused")).env, 12, CPU, 0)
    env.reset()
    for thrown in ([7, 4], range(2, 12)):
        env.engine.qvel[list(thrown)] = 2 * MAX_SPEED
        env.step(torch.zeros(12, 3))
    found = env.take_faults()
    assert [fault["environment"] for fault in found] == [4, 7, 2, 3, 4, 5, 6, 7]
    assert len(found) == MAX_FAULTS
    assert env.take_faults() == []


def test_controls_that_are_none_are_told(faulty: RunFolder, tmp_path: Path) -> None:
    folder = RunFolder.create_or_resume(replace(faulty.config, out=str(tmp_path / "run")))
    (fault,) = json.loads((faulty.path / "diagnostics" / "faults.json").read_text())
    (folder.path / "diagnostics").mkdir()
    (folder.path / "diagnostics" / "faults.json").write_text(json.dumps([fault | {"ctrl": [None, 0.0, 0.0]}]))
    assert "its controls were not finite" in replay_faults(folder)[1][0]

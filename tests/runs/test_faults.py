"""Simulations that went wrong are kept, a few of them, and go wrong again from the files."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny

from echelon.envs.contract import Env
from echelon.errors import UserError
from echelon.runs.faults import keep_faults, open_fault
from echelon.runs.folder import RunFolder
from echelon.sim.contract import MAX_SPEED
from echelon.sim.faults import MAX_FAULTS
from echelon.tasks import make
from echelon.training.loop import train

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


def test_the_state_before_the_step_is_kept_and_its_line_of_code_takes_the_step_again(
    faulty: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = (faulty.path / "diagnostics").glob("fault-*.npz")
    fault = np.load(path)
    assert (fault["iteration"], fault["environment"], fault["policy"]) == (2, 3, 1)
    assert (fault["qvel"] == 2 * MAX_SPEED).all()
    assert np.isfinite(fault["qpos"]).all()
    assert fault["ctrl"].shape == (3,)
    engine = open_fault(path).engine
    assert np.array_equal(engine.qvel[0].numpy(), fault["qvel"])
    assert not engine.bad[0]
    exec(str(fault["reopen"]))
    assert capsys.readouterr().out == "tensor([True])\n"


def test_a_damaged_file_is_one_sentence(faulty: RunFolder, tmp_path: Path) -> None:
    path = shutil.copytree(faulty.path, tmp_path / "run") / "diagnostics" / "fault-0.npz"
    for damage in (
        lambda: path.write_bytes(path.read_bytes()[:100]),
        lambda: np.savez(path, qpos=np.zeros(2), qvel=np.zeros(3)),
        lambda: path.write_bytes(b""),
        path.unlink,
    ):
        damage()
        with pytest.raises(UserError, match="is damaged, or no fault of Hopper"):
            open_fault(path)


def test_only_the_first_are_kept_in_order(faulty: RunFolder, tmp_path: Path) -> None:
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
    shutil.copytree(faulty.path, tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    for iteration in (3, 4):  # one is there already
        keep_faults(folder, iteration, found)
    kept = [np.load(folder.path / "diagnostics" / f"fault-{number}.npz") for number in range(MAX_FAULTS)]
    assert [int(fault["iteration"]) for fault in kept] == [2, *[3] * 7]
    assert len(list((folder.path / "diagnostics").glob("fault-*"))) == MAX_FAULTS

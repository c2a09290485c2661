"""A run that does not fit into memory is refused in one sentence, with what would fit."""

from dataclasses import replace
from pathlib import Path

import pytest
from rollout.stub_env import DriftEnv
from training.test_loop import drift, tiny

from echelon.config import ModelConfig, TrainConfig, UpdateConfig
from echelon.errors import UserError
from echelon.training import memory
from echelon.training.loop import train
from echelon.training.memory import available_bytes, explain_full_memory, rollout_bytes


def refused(config: TrainConfig) -> str:
    with pytest.raises(UserError) as caught:
        train(config, make_env=drift)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_rollout_is_as_large_as_its_numbers() -> None:
    """Two steps of three environments: 3 · 3 · 4 observations, 3 · 3 values, 2 · 3 · (2 + 2) actions and means, and
    2 · 3 · 3 log-probabilities, rewards and final values, four bytes each; 3 · 3 + 2 · 2 · 3 flags of one byte; and
    log sigma of one policy, 2."""
    config = TrainConfig(policies=1, update=UpdateConfig(horizon=2))
    expected = 4 * (36 + 9 + 24 + 18 + 2) + 9 + 12
    assert rollout_bytes(DriftEnv(3), config, 3) == expected


def test_too_many_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many that a few are built first, and so few that their rollout alone is too large."""
    config = tiny(tmp_path / "run", 2)
    monkeypatch.setattr(memory, "available_bytes", lambda: 20_000)
    assert "60 environments and a horizon of 4 need about 0.0 GiB of memory" in refused(replace(config, num_envs=60))
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    sentence = refused(replace(config, num_envs=3_000_000))
    assert sentence.startswith("3,000,000 environments and a horizon of 4 need about ")
    fitting = int(sentence.rsplit("about ")[-1].split()[0].replace(",", ""))
    assert 1000 < fitting < 3_000_000


def test_networks_that_are_too_large(tmp_path: Path) -> None:
    config = replace(tiny(tmp_path / "run", 2), model=ModelConfig(hidden=(65536, 65536, 65536)))
    assert "networks with --model.hidden 65536 65536 65536 need about 128" in refused(config)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")])
def test_memory_that_runs_out_all_the_same(error: Exception) -> None:
    sentence = "256 environments and a horizon of 16 do not fit into the memory of the cpu; try --num-envs 128"
    with pytest.raises(UserError, match=sentence), explain_full_memory(TrainConfig(num_envs=256, device="cpu")):
        raise error


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"), explain_full_memory(TrainConfig()):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="nobody says how much memory there is")
def test_the_memory_that_is_there() -> None:
    free = available_bytes()
    assert free is not None
    assert 0 < free < 2**50

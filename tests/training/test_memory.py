"""Memory that runs out is one sentence, with what to try."""

import pytest

from echelon.config import ModelConfig, TrainConfig
from echelon.errors import UserError
from echelon.training.memory import explain_full_memory


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")])
def test_memory_that_runs_out(error: Exception) -> None:
    sentence = (
        "256 environments, a horizon of 16 and networks of 64 32 do not fit into the memory of the cpu; "
        "try --num-envs 128"
    )
    config = TrainConfig(num_envs=256, device="cpu", model=ModelConfig(hidden=(64, 32)))
    with pytest.raises(UserError, match=sentence), explain_full_memory(config):
        raise error


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"), explain_full_memory(TrainConfig()):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

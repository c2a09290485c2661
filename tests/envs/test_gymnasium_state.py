"""Gymnasium's environments saved and restored: they go on to the bit, or nothing is kept."""

from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest
import torch

gymnasium = pytest.importorskip("gymnasium", reason="needs pip install 'echelon-rl[gymnasium]'")

from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402

from echelon import NullView, preset, train  # noqa: E402
from echelon.config import ModelConfig  # noqa: E402
from echelon.envs.gymnasium_env import GymnasiumEnv, make  # noqa: E402
from echelon.runs import checkpoint  # noqa: E402
from echelon.runs.encoding import decode, encode  # noqa: E402

CPU = torch.device("cpu")


def actions(env: GymnasiumEnv, steps: int) -> torch.Tensor:
    return torch.rand(steps, env.num_envs, env.action_dim, generator=torch.Generator().manual_seed(3)) * 2 - 1


@pytest.mark.parametrize("name", ["Walker2d-v5", "Humanoid-v5", "Reacher-v5", "Pendulum-v1", "CartPole-v1"])
def test_another_instance_goes_on_to_the_bit(name: str) -> None:
    """Humanoid's reward looks at positions that MuJoCo computed in the step before; Reacher's goal is an attribute.
    60 steps are more than an episode of Reacher, and than most of Walker2d under random actions."""
    if not name.startswith(("Pendulum", "CartPole")):
        pytest.importorskip("mujoco")
    first, second = make(name, 2, CPU, 5), make(name, 2, CPU, 6)
    assert isinstance(first, GymnasiumEnv)
    assert isinstance(second, GymnasiumEnv)
    first.reset()
    for action in actions(first, 7):
        first.step(action)
    tensors: dict[str, torch.Tensor] = {}
    stored = encode(first.state_dict(), tensors)  # as a checkpoint has it
    second.load_state_dict(decode(stored, tensors))
    for action in actions(first, 60):
        a, b = first.step(action), second.step(action)
        assert a.obs["policy"].equal(b.obs["policy"])
        assert a.reward.equal(b.reward)
        assert (a.terminated | a.truncated).equal(b.terminated | b.truncated)


def test_what_is_no_plain_data_is_not_kept_by_half() -> None:
    class WithQueue(gymnasium.Wrapper):
        def __init__(self, env: gymnasium.Env) -> None:
            super().__init__(env)
            self.recent = deque([1.0])

    vector = SyncVectorEnv([lambda: WithQueue(gymnasium.make("Pendulum-v1"))], autoreset_mode=AutoresetMode.SAME_STEP)
    env = GymnasiumEnv(vector, CPU)
    env.reset()
    assert env.state_dict() == {}


def test_three_and_three_iterations_are_six_to_the_bit(tmp_path: Path) -> None:
    start = preset("gymnasium:Pendulum-v1")  # cut after 200 steps: 2 of 6 iterations of 50 steps see a reset
    update = replace(start.update, horizon=50, minibatches=2)
    small = replace(start, num_envs=4, device="cpu", update=update, model=ModelConfig(hidden=(8,)))
    whole = train(replace(small, iterations=6, out=str(tmp_path / "whole")), NullView())
    for iterations in (3, 6):
        parts = train(replace(small, iterations=iterations, out=str(tmp_path / "parts")), NullView())
    expected, found = (checkpoint.load(run, "newest").state["trainer"] for run in (whole, parts))
    for name, x in expected["model"].items():
        assert found["model"][name].equal(x), name
    assert found["collector"]["obs"]["policy"].equal(expected["collector"]["obs"]["policy"])

"""Seeds that train side by side: each is the run it would be alone, and resumes to the bit."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from learning.iteration import small_config
from rollout.stub_env import DriftEnv

from echelon.config import DiagnosticsConfig, TrainConfig
from echelon.envs.contract import Env, Groups, Step
from echelon.tasks import make, preset
from echelon.training.stacked import StackedTrainer
from echelon.training.trainer import Trainer

SEEDS = (3, 0, 11)
TOLERANCE = {"rtol": 1e-6, "atol": 1e-6}


class Double:
    """A task that observes and pays in float64."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self) -> Groups:
        return {name: x.double() for name, x in self._env.reset().items()}

    def step(self, action: torch.Tensor) -> Step:
        step = self._env.step(action)
        obs, final = ({name: x.double() for name, x in groups.items()} for groups in (step.obs, step.final_obs))
        return replace(step, obs=obs, final_obs=final, reward=step.reward.double())


def cartpoles(config: TrainConfig, seed: int) -> Any:
    env = preset("CartpoleSwingup").env
    return Double(make("CartpoleSwingup", env, config.num_envs, torch.device("cpu"), seed, spread_clocks=True))


def drifting(config: TrainConfig, seed: int) -> Env:
    return DriftEnv(config.num_envs, seed=seed, critic=True)


def side_by_side(config: TrainConfig, make_env: Callable[[TrainConfig, int], Env]) -> StackedTrainer:
    return StackedTrainer([make_env(config, seed) for seed in SEEDS], [replace(config, seed=seed) for seed in SEEDS])


def assert_close(found: Any, expected: Any, where: str = "state") -> None:
    """Numbers to 1e-6; everything else, names of what is saved among it, the same."""
    if isinstance(expected, torch.Tensor) and expected.is_floating_point():
        torch.testing.assert_close(found, expected, **TOLERANCE, equal_nan=True, msg=lambda text: f"{where}: {text}")
    elif isinstance(expected, dict):
        assert set(found) == set(expected), where
        for name in expected:
            assert_close(found[name], expected[name], f"{where}/{name}")
    elif isinstance(expected, torch.Tensor):
        assert found.equal(expected), where
    else:
        assert found == expected, where


CASES = {
    "PPO": small_config("ppo"),
    "PPO with LSTM": small_config("ppo", lstm=8),
    "CPO with adversary": small_config("cpo", 3, adversary=0.2, entropy_scale=0.01),
    "CPO with adversary and LSTM": small_config("cpo", 3, 8, adversary=0.2),
}


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", CASES)
def test_each_seed_is_its_own_run(name: str) -> None:
    """Three iterations of the cartpole, measurements among them: metrics and all that a checkpoint holds, in float64
    to 1e-6 (the task itself rounds to float32)."""
    config = replace(CASES[name], diagnostics=DiagnosticsConfig(every=2))
    together = side_by_side(config, cartpoles)
    alone = [Trainer(cartpoles(config, seed), replace(config, seed=seed)) for seed in SEEDS]
    for iteration in range(3):
        found = together.iterate_each()
        for ours, run in zip(found, alone, strict=True):
            expected = run.iterate()
            assert list(ours.metrics) == list(expected.metrics)
            for metric, value in expected.metrics.items():
                same = math.isnan(value) and math.isnan(ours.metrics[metric])
                assert same or ours.metrics[metric] == pytest.approx(value, rel=1e-6, abs=1e-6), metric
            assert (ours.kl_matrix is None) == (expected.kl_matrix is None) == bool(iteration % 2 or name[:3] == "PPO")
            if ours.kl_matrix is not None:
                torch.testing.assert_close(torch.tensor(ours.kl_matrix), torch.tensor(expected.kl_matrix), **TOLERANCE)
    together.sync_learned()
    for ours, run in zip(together.runs, alone, strict=True):
        assert_close(ours.state_dict(), run.state_dict())
    first, second, _ = (run.model.mean_head.weight for run in alone)
    assert (first - second).abs().max() > 0.01


def test_a_seed_of_a_stack_goes_on_alone_and_a_run_in_a_stack() -> None:
    """What each saves is a run's checkpoint: one of the stack's continues alone, as the stack does."""
    config = CASES["CPO with adversary and LSTM"]
    together = side_by_side(config, drifting)
    for _ in range(3):
        together.iterate_each()
    together.sync_learned()
    run = Trainer(drifting(config, SEEDS[1]), replace(config, seed=SEEDS[1]))
    run.load_state_dict(together.runs[1].state_dict())
    run.iterate()
    together.iterate_each()
    together.sync_learned()
    assert run.iteration == together.runs[1].iteration == 4
    assert run.gradient_steps == together.runs[1].gradient_steps
    assert_close(together.runs[1].state_dict(), run.state_dict())

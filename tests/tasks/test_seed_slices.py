"""Tasks whose environments several seeds share: each seed's are those of a task of its own, to rounding."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import differing

from echelon.config.schema import ROBUST
from echelon.tasks import make, preset
from echelon.tasks.allegro_kuka.task import AllegroKuka
from echelon.tasks.mujoco_task import MujocoTask

SEEDS, ENVS = (8, 3), 3
CPU = torch.device("cpu")
SOME = ("CartpoleSwingup", "Hopper", "AllegroHand", "Anymal", "FrankaCubePush", "AllegroKukaRegrasping")
"""One of each way to draw random numbers."""


def both(name: str, **settings: Any) -> tuple[MujocoTask[Any], list[Any]]:
    config = replace(preset(name).env, episode_length=4, **settings)
    whole: Any = make(name, config, ENVS * len(SEEDS), CPU, SEEDS, spread_clocks=True)
    return whole, [make(name, config, ENVS, CPU, seed, spread_clocks=True) for seed in SEEDS]


def assert_near(found: torch.Tensor, expected: torch.Tensor, name: str) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8, msg=name)


def assert_together(whole: MujocoTask[Any], alone: list[Any], steps: int) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        action = 2 * torch.rand(whole.num_envs, whole.action_dim, generator=generator) - 1
        found = whole.step(action)
        expected = [env.step(part) for env, part in zip(alone, action.split(ENVS), strict=True)]
        for part in ("obs", "final_obs", "log"):
            for name, x in getattr(found, part).items():
                assert_near(x, torch.cat([getattr(step, part)[name] for step in expected]), name)
        for part in ("reward", "terminated", "truncated"):
            assert_near(getattr(found, part), torch.cat([getattr(step, part) for step in expected]), part)


@pytest.mark.parametrize(
    ("name", "settings"),
    [*((name, {}) for name in SOME), *((name, {"randomise": ROBUST}) for name in ("Hopper", "Anymal"))],
)
def test_each_seeds_environments_are_its_own(name: str, settings: dict[str, Any]) -> None:
    """Observations, rewards, ends, what is logged and what is saved, over several episodes; then from a saved state."""
    whole, alone = both(name, **settings)
    first = [env.reset()["policy"] for env in alone]
    assert whole.reset()["policy"].equal(torch.cat(first))
    assert not first[0].equal(first[1])
    assert_together(whole, alone, 9)
    parts = whole.slices()
    states = [part.state_dict() for part in parts]
    for state, env in zip(states, alone, strict=True):
        assert not differing(state, env.state_dict(), rtol=1e-6, atol=1e-6)
    other, _ = both(name, **settings)
    other.reset()
    for part, state in zip(other.slices(), states, strict=True):
        part.load_state_dict(state)
    assert_together(other, alone, 5)


def test_curricula_and_faults_are_each_seeds_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the second seed succeeds, so only its tolerance shrinks."""
    whole, alone = both("AllegroKukaReorientation", tolerance_interval=1)
    assert isinstance(whole, AllegroKuka)
    whole.reset()
    whole.kept["last_successes"][ENVS:] = 10.0
    step = whole.step(torch.zeros(whole.num_envs, whole.action_dim))
    assert step.log["tolerance"].tolist() == pytest.approx([0.075] * ENVS + [0.0675] * ENVS)
    parts = whole.slices()
    assert [part.state_dict()["kept"]["tolerance"].item() for part in parts] == pytest.approx([0.075, 0.0675])
    older: Any = parts[1].state_dict()
    del older["kept"]["tolerance"]  # as if it were younger than the run
    for env in (parts[0], alone[0]):
        env.load_state_dict(older)
        assert env.state_dict()["kept"]["tolerance"].item() == pytest.approx(0.075)
    whole, _ = both("CartpoleSwingup")
    faults = [{"environment": 4, "qpos": [0.0]}, {"environment": 1, "qpos": [1.0]}]
    monkeypatch.setattr(whole, "take_faults", lambda: [faults.pop(0)] if faults else [])
    first, second = whole.slices()
    assert first.take_faults() == []
    assert first.take_faults() == [{"environment": 1, "qpos": [1.0]}]
    assert second.take_faults() == [{"environment": 1, "qpos": [0.0]}]

"""Several ranks learn what one process learns from the same data, and every statistic that they exchange is needed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from learning.iteration import small_config
from ranks.world import World, train_alone, train_together

from echelon.config import EnsembleConfig, FormationConfig, PbtConfig, PullConfig, TrainConfig

TOLERANCE = 1e-12
FLOCK = FormationConfig(distance=(0.9, 0.5), strength=5.0)
POPULATION = PbtConfig(interval=24, initial_delay=24, wait=0, mutation_probability=0.5, threshold_std=0.1)


def case(algo: str, lstm: int = 0, adversary: float = 0.0, scope: str = "global", **changes: Any) -> TrainConfig:
    """48 environments of four policies, of PPO one; six iterations of eight steps in float64."""
    ensemble = EnsembleConfig(advantage_scope=scope, **changes.pop("ensemble", {}))  # pyright: ignore[reportArgumentType]
    update = {"horizon": 8, "sequence": 4, "kl_threshold": 0.004} | changes.pop("update", {})
    policies = None if algo == "ppo" else 4
    config = small_config(algo, policies, lstm, num_envs=48, ensemble=ensemble, adversary=adversary, **update)
    model = replace(config.model, hidden=(8,))
    return replace(config, model=model, formation=FLOCK if algo == "flock" else FormationConfig(), pbt=POPULATION, **changes)


NORMALISED = PullConfig(beta=0.1, normalise=True, reverse_temperature=0.1)
CASES = {
    "ppo": case("ppo"),
    "ppo-lstm": case("ppo", 4, update={"rate_schedule": "minibatch"}),
    "sapg": case("sapg", scope="policy"),
    "sapg-lstm": case("sapg", 4, ensemble={"borrow_from": "part_of_each", "clip_centre": "old_ratio"}),
    "cpo": case("cpo", scope="group"),
    "cpo-lstm": case("cpo", 4, pull=NORMALISED),
    "cpo-adversary": case("cpo", adversary=0.2, scope="centred", pull=NORMALISED),
    "cpo-adversary-lstm": case("cpo", 4, adversary=0.2, update={"kl_reference": "rollout", "kl_rows": "all"}),
    "cpo-ess": case("cpo", scope="centred", ensemble={"borrow_from": "all", "borrow_worth": "ess"}),
    "sapg-unclipped": case("sapg", ensemble={"borrow_from": "all", "borrow_worth": "unclipped"}),
    "pbt": case("pbt"),
    "pbt-lstm": case("pbt", 4),
    "flock": case("flock", scope="centred"),
    "flock-lstm": case("flock", 4),
}


@pytest.fixture(scope="module", params=[2, 4])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(request.param, tmp_path_factory.mktemp("world"))
    yield world
    world.close()


@pytest.mark.parametrize("name", CASES)
def test_ranks_learn_what_one_process_learns(name: str, world: World) -> None:
    config = CASES[name]
    found = world(train_together, config)
    expected = train_alone(config, world.size)
    assert all(rank.apart(found[0]) == 0.0 for rank in found)
    assert found[0].apart(expected) < TOLERANCE
    assert found[0].takeovers == expected.takeovers
    print(name, found[0].apart(expected), expected.takeovers)
    for ours, theirs in zip(found[0].metrics, expected.metrics, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6, nan_ok=True)

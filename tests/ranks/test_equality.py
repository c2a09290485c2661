"""Several ranks learn what one process learns from the same data, and every statistic that they exchange is needed."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from learning.iteration import small_config
from ranks.world import Trained, World, train_alone, train_together

from echelon.algorithms import PbtConfig, PullConfig
from echelon.config import DiagnosticsConfig, EnsembleConfig, TrainConfig

TOLERANCE = 1e-12
POPULATION = PbtConfig(interval=24, initial_delay=24, wait=0, mutation_probability=0.5, threshold_std=0.1)
EVERYTHING = DiagnosticsConfig(every=2, states=10**6)
"""All rows: of some, ranks would choose others than one process."""
SAME_PASSES = replace(POPULATION, mutable=("learning_rate", "clip"))
"""Ranks that decide differently still take equally many steps, so that the test ends."""


def case(algo: str, lstm: int = 0, adversary: float = 0.0, scope: str = "global", **changes: Any) -> TrainConfig:
    """48 environments of four policies, of PPO one; five iterations of eight steps in float64."""
    ensemble = EnsembleConfig(advantage_scope=scope, **changes.pop("ensemble", {}))  # pyright: ignore[reportArgumentType]
    update = {"horizon": 8, "sequence": 4, "kl_threshold": 0.004} | changes.pop("update", {})
    policies = None if algo == "ppo" else 4
    config = small_config(algo, policies, lstm, num_envs=48, ensemble=ensemble, adversary=adversary, **update)
    model = replace(config.model, hidden=(8,))
    return replace(config, **{"model": model, "pbt": POPULATION} | changes)


NORMALISED = PullConfig(beta=0.1, normalise=True, reverse_temperature=0.1)
CASES = {
    "ppo": case("ppo"),
    "ppo-lstm": case("ppo", 4, update={"rate_schedule": "minibatch", "kl_threshold": 0.008}),
    "sapg": case("sapg", scope="policy"),
    "sapg-lstm": case("sapg", 4, ensemble={"borrow_from": "part_of_each", "clip_centre": "old_ratio"}),
    "cpo": case("cpo", scope="group", diagnostics=EVERYTHING),
    "cpo-lstm": case("cpo", 4, pull=NORMALISED),
    "cpo-adversary": case("cpo", adversary=0.2, scope="centred", pull=NORMALISED),
    "cpo-adversary-lstm": case("cpo", 4, adversary=0.2, update={"kl_reference": "rollout", "kl_rows": "all"}),
    "sapg-all": case("sapg", scope="centred", ensemble={"borrow_from": "all"}),
    "pbt": case("pbt"),
    "pbt-lstm": case("pbt", 4, pbt=SAME_PASSES),
}


NEEDED = {
    "gradient": ("ppo",),
    "KL of the rate rule": ("ppo-lstm",),
    "advantage moments": ("ppo", "cpo", "sapg", "sapg-all"),
    "centres of advantages": ("sapg-all",),
    "value normaliser": ("ppo",),
    "observation normaliser": ("ppo",),
    "drawn follower": ("sapg",),
    "mean weight of the pull": ("cpo-adversary",),
    "gradient of the discriminator": ("cpo-adversary",),
    "objectives of a population": ("pbt-lstm",),
}
"""What is learned otherwise without it, and cases that show it."""
LOGGED = {
    "scores of episodes": ("cpo", "return/leader"),
    "ESS of the diagnostics": ("cpo", "ess"),
    "best of a population": ("pbt-lstm", "pbt/best"),
}
"""What is logged otherwise without it, a case, and the metric."""


FOUR = ("cpo-adversary-lstm", "sapg-all", "pbt-lstm")
"""Cases for four ranks: everything that ranks exchange is in one of them."""


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(request.param, tmp_path_factory.mktemp("world"))
    yield world
    world.close()


@cache
def alone(name: str, size: int) -> Trained:
    return train_alone(CASES[name], size)


@pytest.mark.parametrize(
    ("world", "name"), [*((2, name) for name in CASES), *((4, name) for name in FOUR)], indirect=["world"]
)
def test_ranks_learn_what_one_process_learns(world: World, name: str) -> None:
    found, expected = world(train_together, CASES[name]), alone(name, world.size)
    assert [rank.apart(found[0]) for rank in found] == [0.0] * world.size
    assert found[0].apart(expected) < TOLERANCE
    assert found[0].differs(expected) == set()
    assert found[0].takeovers == expected.takeovers
    assert (expected.takeovers > 0) == name.startswith("pbt")


@pytest.mark.parametrize("world", [2], indirect=True)
@pytest.mark.parametrize(("left_out", "name"), [(what, name) for what, names in NEEDED.items() for name in names])
def test_without_it_they_learn_something_else(left_out: str, name: str, world: World) -> None:
    found, expected = world(train_together, CASES[name], left_out), alone(name, world.size)
    assert max(rank.apart(expected) for rank in found) > 1e6 * TOLERANCE


@pytest.mark.parametrize("world", [2], indirect=True)
@pytest.mark.parametrize(("left_out", "name", "metric"), [(what, *shown) for what, shown in LOGGED.items()])
def test_without_it_something_else_is_logged(left_out: str, name: str, metric: str, world: World) -> None:
    found, expected = world(train_together, CASES[name], left_out), alone(name, world.size)
    assert found[0].apart(expected) < TOLERANCE
    assert metric in found[0].differs(expected)

"""Algorithms by name, and settings completed by them."""

from dataclasses import replace

import pytest

from echelon.algorithms import ALGORITHMS, PPO, complete, find, register
from echelon.config import TrainConfig
from echelon.errors import UserError


@pytest.mark.parametrize(("algo", "policies"), [("ppo", 1), ("pbt", 6), ("sapg", 6), ("cpo", 6)])
def test_an_open_number_of_policies_is_the_algorithms(algo: str, policies: int) -> None:
    config = TrainConfig(algo=algo)
    assert complete(config) == replace(config, policies=policies)


def test_a_number_that_was_given_stays() -> None:
    config = TrainConfig(policies=2)
    assert complete(config) == config


def test_mistakes_are_one_sentence() -> None:
    with pytest.raises(UserError, match=r"^ppo trains one policy, not 4; drop --policies or choose --algo cpo$"):
        complete(TrainConfig(algo="ppo", policies=4))
    with pytest.raises(UserError, match=r"^--algo takes one of ppo, pbt, sapg, cpo, not 'cp0'; did you mean cpo\?$"):
        find("cp0")


def test_an_algorithm_of_ones_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echelon.algorithms.ALGORITHMS", dict(ALGORITHMS))
    mine = register(replace(PPO, name="mine", policies=3, one_policy=False))
    assert find("mine") is mine
    assert complete(TrainConfig(algo="mine")).policies == 3

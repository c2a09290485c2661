"""Sigma that is held at a target."""

import pytest
import torch

from echelon.config import NoiseConfig
from echelon.errors import UserError
from echelon.learning.noise import Noise, ladder
from echelon.learning.targets import explained_variance


def test_targets_rise_in_equal_factors_from_the_leader_to_the_loudest_and_the_ratios_of_sigmas_stay() -> None:
    assert ladder(NoiseConfig(sigma=0.2, loudest=0.8), 3) == pytest.approx([0.2, 0.4, 0.8])
    assert ladder(NoiseConfig(sigma=0.3), 4) == pytest.approx([0.3] * 4)
    assert ladder(NoiseConfig(sigma=0.3, loudest=0.9), 1) == pytest.approx([0.3])
    sigma = torch.tensor([[[1.0, 4.0], [0.5, 0.5]]])  # geometric means 2 and 0.5
    log_sigma = sigma.log()
    Noise(NoiseConfig(sigma=0.2, loudest=1.0), 1.0, log_sigma)
    assert log_sigma.exp().tolist() == [[pytest.approx([0.1, 0.4]), pytest.approx([1.0, 1.0])]]


def test_only_chosen_actions_are_held() -> None:
    log_sigma = torch.tensor([[[3.0, 1.0, 4.0, 5.0]]]).log()  # geometric mean of the middle two is 2
    Noise(NoiseConfig(sigma=0.2, actions=("1:2", "2:3")), 1.0, log_sigma)
    assert log_sigma.exp().flatten().tolist() == pytest.approx([3.0, 0.1, 0.4, 5.0])
    with pytest.raises(UserError, match="actions 3:9 names none of the actions"):
        Noise(NoiseConfig(sigma=0.2, actions=("3:9",)), 1.0, log_sigma)


def test_the_target_moves_geometrically_from_the_first_sigma() -> None:
    """Without a target nothing is touched."""
    log_sigma, free = torch.zeros(1, 1, 2), torch.tensor([[[0.7, -0.3]]])
    noise, without = Noise(NoiseConfig(sigma=0.25, anneal=1000), 1.0, log_sigma), Noise(NoiseConfig(), 1.0, free)
    for steps, expected in ((0, 1.0), (500, 0.5), (1000, 0.25), (5000, 0.25)):
        for one, held in ((noise, log_sigma), (without, free)):
            one.advance(steps)
            one.hold(held)
        assert log_sigma.exp().mean().item() == pytest.approx(expected)
        assert free.equal(torch.tensor([[[0.7, -0.3]]]))


def test_explained_variance_by_hand() -> None:
    returns = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(2, 1, 2)  # variance 1.25
    value = torch.tensor([1.0, 2.0, 3.0, 6.0]).view(2, 1, 2)  # errors 0 0 0 -2: variance 0.75
    assert explained_variance(value, returns).item() == pytest.approx(0.4)
    assert explained_variance(returns, returns).item() == 1.0
    assert explained_variance(torch.full_like(returns, 2.5), returns).item() == pytest.approx(0.0)

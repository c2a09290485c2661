"""Loss terms where numbers are extreme, and a bias of the clip by hand. The oracle compares all others."""

import math
from itertools import product

import pytest
import torch

from echelon.learning.losses import bounds_loss, pull_weight, surrogate, value_loss
from echelon.models import gaussian

F64 = torch.float64


def test_surrogate_of_an_impossible_row_is_finite() -> None:
    """And the row beside it is learned from as ever."""
    for log_ratio, advantage, dtype in product((200.0, -200.0, 1e6), (-3.0, 0.0, 3.0), (torch.float32, F64)):
        leaf = torch.tensor([log_ratio, 0.0], dtype=dtype, requires_grad=True)
        loss = surrogate(leaf, torch.tensor([advantage, 1.0], dtype=dtype), 0.2)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        assert loss.isfinite().all()
        assert abs(gradient[0].item()) < 1e-80
        assert gradient[1].item() == -1.0


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_pull_weight_and_its_cap(dtype: torch.dtype) -> None:
    # λ = ½: exp(2Â) for Â = 0, ½ ln 3, -½ ln 4; the cap 100 is reached at Â = ½ ln 100 and stays for 1e6, whose
    # exponential no float holds; -1e6 is 0.
    advantage = torch.tensor([0.0, 0.5 * math.log(3), -0.5 * math.log(4), 0.5 * math.log(100), 1e6, -1e6], dtype=dtype)
    weight = pull_weight(advantage, temperature=0.5, cap=100.0)
    assert weight.tolist() == pytest.approx([1, 3, 0.25, 100, 100, 0], rel=1e-6)
    assert weight.isfinite().all()
    assert weight.max().item() <= 100.0 * (1 + 1e-6)
    below = pull_weight(torch.tensor([0.0, -10.0], dtype=dtype), 1.0, cap=0.5)  # a cap below one holds too
    assert below.tolist() == pytest.approx([0.5, math.exp(-10)])


@pytest.mark.parametrize(("centre", "expected"), [("one", 0.1220), ("old_ratio", 0.0)])
def test_noise_on_borrowed_rows_draws_the_leaders_sigma_to_a_wider_followers(centre: str, expected: float) -> None:
    """Advantages ±1 that mean nothing, one action, leader σ 1, follower σ 1.1, both around 0, ε 0.2.

    ρ = 1.1·exp(-k z²/2), k = 1 - 1/1.21, is nowhere above 1.2, so rows with +1 always count, and sum to nothing:
    E[z² - 1] = 0 under the leader. Rows with -1 count where ρ > 0.8, that is |z| < c, c² = 2 ln(1.1/0.8)/k = 3.670, and
    -½ E[z² - 1; |z| < c] = c φ(c) = 1.9157 · 0.06368. A clip around the old ratio leaves all rows in, and nothing.
    """
    action, width = torch.linspace(-9, 9, 200_001, dtype=F64), 18 / 200_000
    follower = torch.distributions.Normal(torch.zeros((), dtype=F64), 1.1)
    log_std = torch.zeros((), dtype=F64, requires_grad=True)
    log_ratio = gaussian.log_prob(action[:, None], torch.zeros(1, dtype=F64), log_std) - follower.log_prob(action)
    middle = 1.0 if centre == "one" else log_ratio.detach().exp()
    loss = sum(0.5 * surrogate(log_ratio, torch.tensor(sign), 0.2, middle) for sign in (1.0, -1.0))
    (gradient,) = torch.autograd.grad((follower.log_prob(action).exp() * loss).sum() * width, log_std)
    assert -gradient.item() == pytest.approx(expected, abs=1e-4)


def slope(loss, x: float, **kwargs) -> tuple[float, float]:
    """Value and derivative of a loss of one number."""
    leaf = torch.tensor([x], dtype=F64, requires_grad=True)
    result = loss(leaf, **kwargs)
    return result.item(), torch.autograd.grad(result.sum(), leaf)[0].item()


def test_surrogate() -> None:
    """Centre, ratio, advantage, loss, gradient; around 1 also where nothing is said about the centre."""
    for centre, ratio, advantage, loss, gradient in (
        # -Âρ and, since dρ/d log ρ = ρ, the same number as gradient, where the row is not clipped.
        (1.0, 1.0, 2.0, -2.0, -2.0),
        (1.0, 1.1, 2.0, -2.2, -2.2),
        (1.0, 0.9, -2.0, 1.8, 1.8),
        # Clipped: the loss stays at 1.2·Â or 0.8·Â and there is no gradient.
        (1.0, 1.5, 2.0, -2.4, 0.0),
        (1.0, 0.5, -2.0, 1.6, 0.0),
        # Outside, but the unclipped branch is the worse one, and pulls back.
        (1.0, 0.5, 2.0, -1.0, -1.0),
        (1.0, 1.5, -2.0, 3.0, 3.0),
        (1.0, 3.0, 0.0, 0.0, 0.0),
        # Interval [1.6, 2.4] around 2. A ratio of 1, in the middle of the usual interval, lies outside this one.
        (2.0, 2.0, 1.0, -2.0, -2.0),
        (2.0, 2.3, 1.0, -2.3, -2.3),
        (2.0, 2.5, 1.0, -2.4, 0.0),
        (2.0, 1.5, 1.0, -1.5, -1.5),
        (2.0, 1.5, -1.0, 1.6, 0.0),
        (2.0, 1.0, -1.0, 1.6, 0.0),
        (2.0, 2.5, -1.0, 2.5, 2.5),
    ):
        advantages, centres = (torch.tensor([x], dtype=F64) for x in (advantage, centre))
        for more in ({"centre": centres}, {}) if centre == 1.0 else ({"centre": centres},):
            found = slope(surrogate, math.log(ratio), advantage=advantages, clip=0.2, **more)
            assert found == (pytest.approx(loss), pytest.approx(gradient)), (centre, ratio, advantage)


def test_value_and_bounds_loss() -> None:
    """Value, old value, target, loss, gradient."""
    for value, old, target, loss, gradient in (
        # Within ±0.2 of the old value: (V - G)² and 2(V - G).
        (1.1, 1.0, 3.0, 3.61, -3.8),
        # Moved by 0.5 towards the target: the clipped value 1.2 has the larger error, and no gradient.
        (1.5, 1.0, 3.0, 3.24, 0.0),
        # Moved away from the target: the value itself has the larger error.
        (0.5, 1.0, 3.0, 6.25, -5.0),
        # Beyond the target: the clipped error 0.8 beats the own error 0.1, so nothing pulls further.
        (1.9, 1.0, 2.0, 0.64, 0.0),
        # Far beyond it: the own error 1.5 is the larger again.
        (3.5, 1.0, 2.0, 2.25, 3.0),
    ):
        before, returns = torch.tensor([[old], [target]], dtype=F64)
        found = slope(value_loss, value, old_value=before, returns=returns, clip=0.2)
        assert found == (pytest.approx(loss), pytest.approx(gradient)), (value, target)
    # Beyond ±1.1 by 0.4 and 0.9: 0.16 + 0.81, with slopes 2·0.4 and -2·0.9; within there is neither.
    mean = torch.tensor([[1.5, -2.0, 1.0, -1.1], [1.1, 0.0, -1.0, 1.05]], dtype=F64, requires_grad=True)
    loss = bounds_loss(mean)
    assert loss.tolist() == pytest.approx([0.97, 0.0])
    (gradient,) = torch.autograd.grad(loss.sum(), mean)
    assert gradient.flatten().tolist() == pytest.approx([0.8, -1.8, 0, 0, 0, 0, 0, 0])

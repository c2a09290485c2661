"""The diagonal Gaussian by hand and by numerical integration. The oracle compares sums over actions, and gradients."""

import math

import numpy as np
import pytest
import torch

from echelon.models.gaussian import entropy, log_prob

LN2 = math.log(2.0)
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def numbers(*x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64, requires_grad=True)


def test_numbers_by_hand_and_by_integration() -> None:
    """Densities integrate to one, and the mean of their logarithms is minus the entropy."""
    x, log_std = np.linspace(-12.0, 14.0, 20001), numbers(math.log(1.3)).detach()
    logs = log_prob(torch.from_numpy(x)[:, None], numbers(0.7).detach(), log_std).numpy()
    assert np.trapezoid(np.exp(logs), x) == pytest.approx(1.0, abs=1e-12)
    assert -np.trapezoid(np.exp(logs) * logs, x) == pytest.approx(entropy(log_std).item(), abs=1e-12)
    # Two actions. First: μ = 1, σ = 2, a = 5, so z = 2 and log p = -2 - ln 2 - ½ ln 2π.
    # Second: μ = 0, σ = ½, a = ½, so z = 1 and log p = -½ + ln 2 - ½ ln 2π. The two ln 2 cancel in the sum.
    found = log_prob(numbers(5.0, 0.5)[None], numbers(1.0, 0.0)[None], numbers(LN2, -LN2))
    assert found.tolist() == [pytest.approx(-2.5 - 2 * HALF_LOG_2PI, abs=1e-14)]
    # Entropy: ½ + ½ ln 2π + log σ for each action; log σ = ln 2 and -3.
    log_std = torch.stack((numbers(LN2, -3.0), numbers(0.0, 0.0)))
    assert entropy(log_std).tolist() == pytest.approx([1 + 2 * HALF_LOG_2PI + LN2 - 3, 1 + 2 * HALF_LOG_2PI])
    # ∂ log p/∂μ = z/σ and ∂ log p/∂ log σ = z² - 1; with a - μ = 3 and σ = 2, z = 3/2.
    mean, log_std = numbers(1.0), numbers(LN2)
    slopes = torch.autograd.grad(log_prob(numbers(4.0), mean, log_std), (mean, log_std))
    assert [slope.item() for slope in slopes] == pytest.approx([0.75, 1.25])

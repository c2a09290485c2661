"""The diagonal Gaussian against numerical integration. The oracle compares sums over actions, and gradients."""

import math

import numpy as np
import pytest
import torch

from echelon.models.gaussian import entropy, log_prob


def test_log_prob_integrates_to_one_and_its_mean_is_minus_the_entropy() -> None:
    x = np.linspace(-12.0, 14.0, 20001)
    log_std = torch.tensor([math.log(1.3)], dtype=torch.float64)
    logs = log_prob(torch.from_numpy(x)[:, None], torch.full((1,), 0.7, dtype=torch.float64), log_std).numpy()
    assert np.trapezoid(np.exp(logs), x) == pytest.approx(1.0, abs=1e-12)
    assert -np.trapezoid(np.exp(logs) * logs, x) == pytest.approx(entropy(log_std).item(), abs=1e-12)


LN2 = math.log(2.0)


HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def test_log_prob_by_hand() -> None:
    # Two actions. First: μ = 1, σ = 2, a = 5, so z = 2 and log p = -2 - ln 2 - ½ ln 2π.
    # Second: μ = 0, σ = ½, a = ½, so z = 1 and log p = -½ + ln 2 - ½ ln 2π. The two ln 2 cancel in the sum.
    action = torch.tensor([[5.0, 0.5]], dtype=torch.float64)
    mean = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    log_std = torch.tensor([LN2, -LN2], dtype=torch.float64)
    assert log_prob(action, mean, log_std).tolist() == [pytest.approx(-2.5 - 2 * HALF_LOG_2PI, abs=1e-14)]


def test_entropy_by_hand() -> None:
    # ½ + ½ ln 2π + log σ for each action; log σ = ln 2 and -3.
    log_std = torch.tensor([[LN2, -3.0], [0.0, 0.0]], dtype=torch.float64)
    assert entropy(log_std).tolist() == pytest.approx([1 + 2 * HALF_LOG_2PI + LN2 - 3, 1 + 2 * HALF_LOG_2PI])


def test_gradients_by_hand() -> None:
    # ∂ log p/∂μ = z/σ and ∂ log p/∂ log σ = z² - 1; with a - μ = 3 and σ = 2, z = 3/2.
    mean = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    log_std = torch.tensor([LN2], dtype=torch.float64, requires_grad=True)
    log_prob(torch.tensor([4.0], dtype=torch.float64), mean, log_std).backward()
    assert mean.grad is not None
    assert log_std.grad is not None
    assert mean.grad.item() == pytest.approx(0.75)
    assert log_std.grad.item() == pytest.approx(1.25)

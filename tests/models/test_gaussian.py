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

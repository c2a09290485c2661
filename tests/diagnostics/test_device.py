"""Diagnostics run on the device of their arguments and never read it back."""

import torch
from gpu import needs_gpu
from torch import Tensor

from echelon.diagnostics.propositions import (
    clip_bias,
    clip_bias_bound,
    ess_rate,
    gaussian_score,
    is_deviation,
    kl_matrix,
    nearest_policy,
)


def measure(device: torch.device) -> list[Tensor]:
    """Every diagnostic once, on tensors of `device`."""
    vector = torch.randn(64, device=device)
    action, mean, log_std = torch.randn(3, 64, 5, device=device)
    score = gaussian_score(action, mean, log_std)
    matrix = kl_matrix(torch.randn(4, 4, 8, 5, device=device), torch.randn(4, 5, device=device))
    bias = clip_bias(vector, vector, score, 0.2), clip_bias_bound(vector, vector, score, 0.2)
    return [is_deviation(vector), ess_rate(vector), score, matrix, nearest_policy(matrix), *bias]


def test_no_value_is_needed_on_the_host() -> None:
    """Meta tensors have no values: a host read, or a constant on another device, raises."""
    results = measure(torch.device("meta"))
    assert [tuple(result.shape) for result in results] == [(), (), (64, 10), (4, 4), (4,), (10,), ()]
    assert all(result.dtype in (torch.float32, torch.int64) for result in results)


@needs_gpu
def test_cuda_without_synchronisation() -> None:
    measure(torch.device("cuda"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = measure(torch.device("cuda"))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(result.is_cuda for result in results)

"""How often the host waits, in torch's own words; `test_bench.py` has a copy of them, which shows nothing of torch."""

import torch
from gpu import needs_gpu

from echelon.bench.clock import synchronisations


@needs_gpu
def test_torch_says_when_the_host_waits_and_only_then() -> None:
    device = torch.device("cuda")
    x = torch.zeros((), device=device)
    assert synchronisations(lambda: x.item(), device) == 1
    assert synchronisations(lambda: x.add_(1), device) == 0

"""How the trunk is initialised. The oracle compares what it computes; acting and learning agree on real rollouts."""

import math

import pytest
import torch
from torch import Tensor

from echelon.models.linear import Linear
from echelon.models.trunk import Trunk


def build(lstm: int, phi_dim: int, hidden: tuple[int, ...], obs_dim: int) -> Trunk:
    torch.manual_seed(0)
    return Trunk(obs_dim, phi_dim, lstm, hidden).double()


def uniform_within(tensor: Tensor, bound: float) -> bool:
    """All entries within ±bound and the largest near it; 200 entries or more make that all but certain."""
    assert tensor.numel() >= 200
    return 0.9 * bound < tensor.abs().max().item() <= bound and abs(tensor.mean().item()) < 0.2 * bound


@pytest.mark.parametrize(("lstm", "phi_dim", "widths"), [(0, 0, (50, 40)), (0, 8, (50, 40)), (64, 8, (64,))])
def test_initialisation(lstm: int, phi_dim: int, widths: tuple[int, ...]) -> None:
    """The split layer counts both inputs, as one layer on the concatenation would; an LSTM's tensors its units."""
    trunk = build(obs_dim=20, phi_dim=phi_dim, lstm=lstm, hidden=(50,) if lstm else (50, 40, 30))
    first = [trunk.observe.weight, *([trunk.condition.weight] if trunk.condition is not None else [])]
    assert len(first) == 1 + (phi_dim > 0)
    assert trunk.condition is None or trunk.condition.bias is None
    if lstm:
        first += [trunk.observe.bias, trunk.recur.weight, trunk.recur.bias]
        assert trunk.norm.weight.eq(1).all()
        assert not trunk.norm.bias.any()
    assert lstm or not trunk.observe.bias.any()
    assert all(uniform_within(tensor, 1 / math.sqrt(lstm or 20 + phi_dim)) for tensor in first)
    for layer, fan_in in zip(trunk.layers, widths, strict=True):
        assert isinstance(layer, Linear)
        assert uniform_within(layer.weight, 1 / math.sqrt(fan_in))
        assert not layer.bias.any()
    assert (trunk.feature_dim, trunk.state_dim) == ((50, 128) if lstm else (30, 0))

"""The trunk: its LSTM step by step and in chunks, and how it is initialised. The oracle compares what it computes."""

import math

import pytest
import torch
from torch import Tensor

from echelon.models.linear import Linear
from echelon.models.trunk import Trunk

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


def build(lstm: int = 0, phi_dim: int = 2, hidden: tuple[int, ...] = (7, 4), obs_dim: int = 3) -> Trunk:
    torch.manual_seed(0)
    return Trunk(obs_dim, phi_dim, lstm, hidden).double()


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_whole_unroll_equals_chunks_equals_single_steps_with_resets_between() -> None:
    """The update unrolls sequences with `start` flags; acting takes single steps and zeroes the state itself."""
    trunk, steps, envs = build(lstm=6), 12, 5
    start = torch.rand(steps, envs, generator=torch.Generator().manual_seed(3)) < 0.3
    start[0, 0], start[4, 1], start[3, 2] = True, True, True  # at the beginning, at and just before a chunk's edge
    assert start.any(1).all()
    obs, phi, ids = normal(steps, envs, 3), normal(2, 2, seed=2), torch.tensor([0, 1, 1, 0, 1])
    first = normal(envs, 12, seed=4)
    projected = trunk.project(obs)

    whole, last = trunk(projected, phi[None], ids, first, start)

    state, chunks = first, []
    for begin in range(0, steps, 4):
        part = slice(begin, begin + 4)
        features, state = trunk(projected[part], phi[None], ids, state, start[part])
        chunks.append(features)
    torch.testing.assert_close((torch.cat(chunks), state), (whole, last), **TIGHT)

    state, never, singles = first, torch.zeros(1, envs, dtype=torch.bool), []
    for t in range(steps):
        state = state * (~start[t])[:, None]
        features, state = trunk(trunk.project(obs[t : t + 1]), phi[None], ids, state, never)
        singles.append(features)
    torch.testing.assert_close((torch.cat(singles), state), (whole, last), **TIGHT)


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

"""Layers of stacked networks are PyTorch's layers, one after another."""

import pytest
import torch
from gpu import MARKS

from echelon.models.linear import column_major, linear, product


@pytest.mark.parametrize("networks", [1, 3])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=MARKS)])
def test_values_and_gradients_are_those_of_each_network(device: str, networks: int) -> None:
    generator = torch.Generator(device).manual_seed(0)
    like = {"generator": generator, "dtype": torch.float64, "device": device}
    sizes = (2, networks * 5, 3), (networks, 4, 3), (networks, 4)
    leaves = [torch.randn(n, **like).requires_grad_() for n in sizes]
    x, weight, bias = leaves
    blocks = zip(x.unflatten(1, (networks, 5)).unbind(1), weight, bias, strict=True)
    wanted = torch.cat([torch.nn.functional.linear(*block) for block in blocks], dim=1)
    for found in (linear(x, weight, bias), product(x, weight) + bias.repeat_interleave(5, dim=0)):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
        for a, b in zip(
            torch.autograd.grad(found.sin().sum(), leaves),
            torch.autograd.grad(wanted.sin().sum(), leaves, retain_graph=True),
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("device", "strides"), [("cpu", (12, 4, 1)), pytest.param("cuda", (12, 1, 3), marks=MARKS)])
def test_a_column_major_weight_is_the_same(device: str, strides: tuple[int, ...]) -> None:
    weight = torch.randn(2, 3, 4, device=device)
    assert column_major(weight).equal(weight)
    assert column_major(weight).stride() == strides

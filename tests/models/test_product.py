"""A product of ours is `linear`."""

import pytest
import torch

from echelon.models.product import product, turned

CUDA = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
def test_values_and_gradients_are_those_of_linear(device: str) -> None:
    generator = torch.Generator(device).manual_seed(0)
    sizes, like = ((2, 5, 3), (4, 3)), {"generator": generator, "dtype": torch.float64, "device": device}
    leaves = [torch.randn(n, **like).requires_grad_() for n in sizes]
    found, wanted = product(*leaves), torch.nn.functional.linear(*leaves)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    for a, b in zip(*(torch.autograd.grad(x.sin().sum(), leaves) for x in (found, wanted)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("device", "strides"), [("cpu", (4, 1)), pytest.param("cuda", (1, 3), marks=CUDA)])
def test_a_turned_weight_is_the_same(device: str, strides: tuple[int, int]) -> None:
    weight = torch.randn(3, 4, device=device)
    assert turned(weight).equal(weight)
    assert turned(weight).stride() == strides

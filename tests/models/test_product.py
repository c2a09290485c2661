"""A product of ours is `linear`."""

import torch

from echelon.models.product import product, turned


def test_values_and_gradients_are_those_of_linear() -> None:
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(n, generator=generator, dtype=torch.float64).requires_grad_() for n in ((2, 5, 3), (4, 3))]
    found, wanted = product(*leaves), torch.nn.functional.linear(*leaves)
    assert found.equal(wanted)
    for a, b in zip(*(torch.autograd.grad(x.sin().sum(), leaves) for x in (found, wanted)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_turned_weight_is_the_same() -> None:
    weight = torch.randn(3, 4)
    assert turned(weight).equal(weight)

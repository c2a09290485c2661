"""Layers of stacked networks are PyTorch's layers, one after another; a lookup is indexing, forwards and backwards."""

import pytest
import torch
from gpu import MARKS

from echelon.models.linear import column_major, linear, lookup, product


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
    gradients = torch.autograd.grad(wanted.sin().sum(), leaves)
    for found in (linear(x, weight, bias), product(x, weight) + bias.repeat_interleave(5, dim=0)):
        results = (found, *torch.autograd.grad(found.sin().sum(), leaves))
        torch.testing.assert_close(results, (wanted, *gradients), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("device", "strides"), [("cpu", (12, 4, 1)), pytest.param("cuda", (12, 1, 3), marks=MARKS)])
def test_a_column_major_weight_is_the_same(device: str, strides: tuple[int, ...]) -> None:
    weight = torch.randn(2, 3, 4, device=device)
    assert column_major(weight).equal(weight)
    assert column_major(weight).stride() == strides


def test_a_lookup_and_its_gradient_equal_plain_indexing_and_stay_when_the_table_is_written() -> None:
    ids = torch.tensor([2, 0, 2, 2, 1, 0])  # policy 3 has no row, hence no gradient
    weight = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = []
    for pick in (lookup, lambda table, ids: table[ids]):
        table = torch.arange(12.0, dtype=torch.float64).view(4, 3).requires_grad_()
        rows = pick(table, ids)
        assert rows.tolist() == [[3.0 * i, 3.0 * i + 1, 3.0 * i + 2] for i in ids.tolist()]
        gradients += torch.autograd.grad((rows * weight).sum(), table)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-15)
    # By hand for policy 1, whose only row is the fifth, and for policy 3.
    assert gradients[0][1::2].tolist() == [weight[4].tolist(), [0.0, 0.0, 0.0]]
    # The KL that moves the learning rate reads the log sigma from before a step, after it.
    for policies in (1, 3):
        table = torch.zeros(policies, 2)
        rows = lookup(table, torch.zeros(4, dtype=torch.int64))
        table.fill_(5.0)
        assert not rows.any()
    table = torch.tensor([[1.0, 2.0]], requires_grad=True)
    rows = lookup(table, torch.zeros(4, dtype=torch.int64))
    assert rows.shape == (1, 2)
    # Each entry's gradient is the sum of its column: 0 + 2 + 4 + 6 and 1 + 3 + 5 + 7.
    (gradient,) = torch.autograd.grad((rows * torch.arange(8.0).view(4, 2)).sum(), table)
    assert gradient.tolist() == [[12.0, 16.0]]

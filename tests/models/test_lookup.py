"""Lookup is indexing, forwards and backwards."""

import torch

from echelon.models.linear import lookup


def test_forward_and_backward_equal_plain_indexing() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.tensor([2, 0, 2, 2, 1, 0])  # policy 3 has no row, hence no gradient
    weight = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    gradients = []
    for pick in (lookup, lambda table, ids: table[ids]):
        table = torch.arange(12.0, dtype=torch.float64).view(4, 3).requires_grad_()
        rows = pick(table, ids)
        assert rows.tolist() == [[3.0 * i, 3.0 * i + 1, 3.0 * i + 2] for i in ids.tolist()]
        (rows * weight).sum().backward()
        gradients.append(table.grad)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-15)
    assert gradients[0][3].tolist() == [0.0, 0.0, 0.0]
    # By hand for policy 1, whose only row is the fifth.
    assert gradients[0][1].tolist() == weight[4].tolist()


def test_what_was_looked_up_stays_when_the_table_is_written() -> None:
    """Of one row too: the KL that moves the learning rate reads the log sigma from before a step, after it."""
    for policies in (1, 3):
        table = torch.zeros(policies, 2)
        rows = lookup(table, torch.zeros(4, dtype=torch.int64))
        table.fill_(5.0)
        assert not rows.any()


def test_one_row_broadcasts() -> None:
    table = torch.tensor([[1.0, 2.0]], requires_grad=True)
    rows = lookup(table, torch.zeros(4, dtype=torch.int64))
    assert rows.shape == (1, 2)
    (rows * torch.arange(8.0).view(4, 2)).sum().backward()
    # Each entry's gradient is the sum of its column: 0 + 2 + 4 + 6 and 1 + 3 + 5 + 7.
    assert table.grad is not None
    assert table.grad.tolist() == [[12.0, 16.0]]

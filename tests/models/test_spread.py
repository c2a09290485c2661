"""What follows the first layer's product: units laid out, conditioned and activated."""

import pytest
import torch
from torch import Tensor

from echelon.models.spread import Blocks, Sharing, spread

GROUPS = [(True, True), (True, False), (False, True), (False, False)]


def sharing(
    followers: int = 2, leader: int = 3, follower: int = 2, borrows: bool = True, pulls: bool = True, drawn: int = 2
) -> Sharing:
    blocks, chosen = Blocks(followers, leader, follower, borrows, pulls), torch.tensor([drawn])
    return Sharing(blocks, chosen, blocks.source(chosen))


def table(how: Sharing) -> tuple[list[int], list[int]]:
    """Unit and policy of every evaluation, counted out."""
    blocks = how.blocks
    units = [(0, i) for i in range(blocks.leader_units)]
    units += [(p, i) for p in range(1, blocks.followers + 1) for i in range(blocks.follower_units)]
    number = {unit: index for index, unit in enumerate(units)}
    listed = [(unit, unit[0]) for unit in units]
    if blocks.borrows:
        listed += [((int(how.follower), i), 0) for i in range(blocks.follower_units)]
    if blocks.pulls:
        listed += [((0, i), p) for p in range(1, blocks.followers + 1) for i in range(blocks.leader_units)]
    return [number[unit] for unit, _ in listed], [policy for _, policy in listed]


def inputs(how: Sharing, steps: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Units, conditions, and weights of the outputs in a loss, in float64 but exact in bfloat16."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).bfloat16().double()

    own, borrowed, pulled = how.blocks.counts
    units, cond = normal(steps, own, width), normal(how.blocks.followers + 1, width)
    return units.requires_grad_(), cond.requires_grad_(), normal(steps, own + borrowed + pulled, width)


def expected(how: Sharing, x: Tensor, cond: Tensor, weight: Tensor, activate: bool) -> tuple[Tensor, ...]:
    """Outputs and gradients by plain indexing, an evaluation at a time."""
    outputs = torch.stack([x[:, unit] + cond[policy] for unit, policy in zip(*table(how), strict=True)], dim=1)
    if activate:
        outputs = torch.where(outputs > 0, outputs, torch.expm1(outputs))
    return outputs.detach(), *torch.autograd.grad((outputs * weight).sum(), (x, cond))


@pytest.mark.parametrize("activate", [True, False])
@pytest.mark.parametrize(("borrows", "pulls"), GROUPS)
def test_the_eager_formulation(borrows: bool, pulls: bool, activate: bool) -> None:
    how = sharing(borrows=borrows, pulls=pulls)
    x, cond, weight = inputs(how, 2, 4)
    found = spread(x, cond, torch.tensor(table(how)[1]), how, activate=activate)
    gradients = torch.autograd.grad((found * weight).sum(), (x, cond))
    for a, b in zip((found, *gradients), expected(how, x, cond, weight, activate), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_by_hand() -> None:
    """Two policies, a unit each: 1 and -1, with 2 and -3 added for the policies."""
    how = sharing(followers=1, leader=1, follower=1, drawn=1)
    x, cond = torch.tensor([[[1.0], [-1.0]]]), torch.tensor([[2.0], [-3.0]])
    found = spread(x, cond, torch.tensor([0, 1, 0, 1]), how, activate=False)
    # own: 1 + 2, -1 - 3; the leader on the follower's: -1 + 2; the follower on the leader's: 1 - 3
    assert found.flatten().tolist() == [3.0, -4.0, 1.0, -2.0]


def test_without_sharing_or_condition() -> None:
    x = torch.tensor([[[1.0], [-1.0]]])
    ids = torch.tensor([1, 0])
    assert spread(x, None, ids, None, activate=False).equal(x)
    assert spread(x, torch.tensor([[2.0], [-3.0]]), ids, None, activate=False).flatten().tolist() == [-2.0, 1.0]
    shared = spread(x, None, ids, sharing(followers=1, leader=1, follower=1, drawn=1), activate=False)
    assert shared.flatten().tolist() == [1.0, -1.0, -1.0, 1.0]

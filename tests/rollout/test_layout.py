"""Blocks of environments: contiguous, network by network, the leader's first."""

import math

import pytest
import torch

from echelon.config import UpdateConfig
from echelon.errors import UserError
from echelon.learning.settings import entropy_ladder
from echelon.rollout.layout import Layout


def test_blocks_lie_one_after_another() -> None:
    for num_envs, given, sizes in (
        *((1, (), [1]), (6, (), [1] * 6), (12, (), [4, 4, 4])),
        *((11, (), [5, 3, 3]), (100, (), [16, *[14] * 6])),  # a remainder goes to the leader
        (11, (2, 8, 1), [2, 8, 1]),
    ):
        policies = range(len(sizes))
        layout = Layout(num_envs, len(sizes), sizes=given)
        assert layout.policy_id.tolist() == [policy for policy in policies for _ in range(sizes[policy])]
        ends = [sum(sizes[: policy + 1]) for policy in policies]
        blocks = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        assert (layout.sizes, [layout.environments(policy) for policy in policies]) == (sizes, blocks)
    layout = Layout(10, 4, networks=2, sizes=(3, 2))  # networks are alike
    assert layout.policy_id.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert (layout.each, layout.envs) == (2, 5)
    assert layout.environments(3) == slice(8, 10)
    assert layout.ids(1, 2).tolist() == [1, 1, 3, 3]


@pytest.mark.parametrize("dim", [0, 1])
def test_blocks_of_a_tensor(dim: int) -> None:
    """The first network has environments 0 to 5, the second 6 to 11; each with blocks of 2, 2, 2."""
    layout = Layout(12, 6, networks=2)
    x = torch.arange(24).view(2, 12) % 12
    x = x.T.contiguous() if dim == 0 else x
    assert layout.block(x, dim, 0).movedim(dim, 0)[:, 0].tolist() == [0, 1, 6, 7]
    assert layout.block(x, dim, 2).movedim(dim, 0)[:, 0].tolist() == [4, 5, 10, 11]
    for drawn, rows in (([1, 4], [2, 3, 8, 9]), ([2, 4], [4, 5, 8, 9])):
        block = layout.drawn_block(x, dim, torch.tensor(drawn))
        assert block.shape == ((4, 2) if dim == 0 else (2, 4))
        assert block.movedim(dim, 0)[:, 0].tolist() == rows
    assert Layout(11, 3).drawn_block(torch.arange(11), 0, torch.tensor([2])).tolist() == [8, 9, 10]


def test_entropy_coefficients() -> None:
    def ladder(coef: float, scale: float, networks: int = 1) -> list[float]:
        layout = Layout(72, 6, networks=networks)
        return entropy_ladder(UpdateConfig(entropy_coef=coef, entropy_scale=scale), layout)["entropy_coef"].tolist()

    assert ladder(0.0, 1.0) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    # The fact sheet's, at scale 0.005, leader first.
    assert ladder(0.0, 0.005) == pytest.approx([0, 5e-4, 1e-3, 1.5e-3, 2e-3, 2.5e-3])
    # `entropy_coef` is the same for all, and comes on top; every network has a ladder.
    assert ladder(0.01, 0.4, networks=2) == pytest.approx([0.01, 0.11, 0.21] * 2)
    # Alone, or without a ladder, the number is enough.
    for layout, scale in ((Layout(3, 1), 0.4), (Layout(3, 3), 0.0)):
        assert entropy_ladder(UpdateConfig(entropy_coef=0.01, entropy_scale=scale), layout) == {}


def test_policy_means() -> None:
    layout = Layout(7, 3)  # blocks of 3, 2, 2
    x = torch.tensor([1.0, 2.0, 6.0, 10.0, 20.0, -1.0, 1.0])
    assert layout.policy_means(x).tolist() == pytest.approx([3.0, 15.0, 0.0], abs=1e-6)
    flags = torch.tensor([True, False, False, True, True, False, True])
    assert layout.policy_means(flags).tolist() == pytest.approx([1 / 3, 1.0, 0.5])
    assert Layout(8, 4, networks=2).policy_means(torch.arange(8.0)).tolist() == [0.5, 2.5, 4.5, 6.5]
    for bad in (math.nan, math.inf):  # what is not finite concerns its own policy only
        first, second, third = Layout(6, 3).policy_means(torch.tensor([1.0, 3.0, bad, 5.0, 7.0, 9.0])).tolist()
        assert (first, third) == (2.0, 8.0)
        assert not math.isfinite(second)


def test_refusals() -> None:
    for sizes, sentence in (
        ((5, 6), "6 policies need at least 6 environments, not 5"),
        ((5, 0), "policies must be at least 1, not 0"),
        ((256, 6, 6), "--num-envs 256 does not divide between the 6.*; 252 would"),
        ((8, 2, 1, (4, 5)), "2 policies with 8 environments cannot have 4, 5 of them"),
        ((8, 2, 1, (8, 0)), "cannot have 8, 0 of them"),
        ((8, 2, 1, (8,)), "cannot have 8 of them: one positive number each"),
    ):
        arguments = dict(zip(("num_envs", "policies", "networks", "sizes"), sizes, strict=False))
        with pytest.raises(UserError, match=sentence):
            Layout(**arguments)

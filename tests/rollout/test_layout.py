"""Blocks of environments: contiguous, the leader's first, followers' all alike."""

import math

import pytest
import torch

from echelon.errors import UserError
from echelon.rollout.layout import LEADER, Layout


def test_even_blocks() -> None:
    layout = Layout(12, 3)
    assert layout.policy_id.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert layout.sizes == [4, 4, 4]
    assert LEADER == 0


def test_the_remainder_goes_to_the_leader() -> None:
    layout = Layout(11, 3)
    assert layout.policy_id.tolist() == [0] * 5 + [1] * 3 + [2] * 3
    assert layout.sizes == [5, 3, 3]
    assert (layout.leader_envs, layout.follower_envs, layout.followers) == (5, 3, 2)


@pytest.mark.parametrize(("num_envs", "policies"), [(1, 1), (7, 1), (6, 6), (11, 6), (256, 6), (100, 7)])
def test_blocks_partition_the_environments(num_envs: int, policies: int) -> None:
    layout = Layout(num_envs, policies)
    ids = layout.policy_id
    assert len(ids) == num_envs
    assert ids.diff().ge(0).all()
    counts = ids.bincount(minlength=policies).tolist()
    assert counts == layout.sizes
    assert set(counts[1:]) <= {num_envs // policies}
    assert counts[0] - num_envs // policies == num_envs % policies


@pytest.mark.parametrize("dim", [0, 1])
def test_blocks_of_a_tensor(dim: int) -> None:
    layout = Layout(11, 3)
    x = torch.arange(22).view(2, 11) % 11
    x = x.T.contiguous() if dim == 0 else x
    assert layout.leader_block(x, dim).movedim(dim, 0)[:, 0].tolist() == [0, 1, 2, 3, 4]
    blocks = layout.follower_blocks(x, dim)
    assert blocks.movedim((dim, dim + 1), (0, 1))[:, :, 0].tolist() == [[5, 6, 7], [8, 9, 10]]
    for follower, rows in ((1, [5, 6, 7]), (2, [8, 9, 10])):
        block = layout.follower_block(x, dim, torch.tensor([follower]))
        assert block.shape == ((3, 2) if dim == 0 else (2, 3))
        assert block.movedim(dim, 0)[:, 0].tolist() == rows


def test_entropy_coefficients() -> None:
    assert Layout(6, 6).entropy_coefs(0.0, 1.0).tolist() == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    # The fact sheet's, at scale 0.005, leader first.
    assert Layout(60, 6).entropy_coefs(0.0, 0.005).tolist() == pytest.approx([0, 5e-4, 1e-3, 1.5e-3, 2e-3, 2.5e-3])
    # `entropy_coef` is the same for all, and comes on top.
    assert Layout(3, 3).entropy_coefs(0.01, 0.4).tolist() == pytest.approx([0.01, 0.11, 0.21])
    assert Layout(3, 1).entropy_coefs(0.01, 0.4).tolist() == pytest.approx([0.01])


def test_policy_means() -> None:
    layout = Layout(7, 3)  # blocks of 3, 2, 2
    x = torch.tensor([1.0, 2.0, 6.0, 10.0, 20.0, -1.0, 1.0])
    assert layout.policy_means(x).tolist() == pytest.approx([3.0, 15.0, 0.0], abs=1e-6)
    flags = torch.tensor([True, False, False, True, True, False, True])
    assert layout.policy_means(flags).tolist() == pytest.approx([1 / 3, 1.0, 0.5])
    assert not math.isnan(Layout(3, 3).policy_means(torch.zeros(3)).sum())


@pytest.mark.parametrize(
    ("num_envs", "policies", "sentence"),
    [(5, 6, "6 policies need at least 6 environments, not 5"), (5, 0, "policies must be at least 1, not 0")],
)
def test_refusals(num_envs: int, policies: int, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Layout(num_envs, policies)

"""Plans: which row is evaluated under which policy and why, and how all of them are shared out over minibatches."""

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product

import pytest
import torch
from learning.iteration import listing
from torch import Tensor

from echelon.algorithms.cpo import PULL
from echelon.algorithms.sapg import BORROWS, BORROWS_OF_EACH
from echelon.config import UpdateConfig
from echelon.errors import UserError
from echelon.learning.plans import Group, Plan, leader_from_all_followers
from echelon.learning.settings import Settings
from echelon.rollout.layout import Layout

GROUPS = {"ppo": (), "sapg": (BORROWS,), "cpo": (BORROWS, PULL)}


@dataclass(frozen=True)
class Case:
    """A plan's sizes."""

    algo: str
    num_envs: int
    policies: int
    horizon: int
    length: int = 1
    minibatches: int | float = 2

    def plan(self) -> Plan:
        layout = Layout(self.num_envs, self.policies)
        return Plan(layout, self.horizon, self.length, GROUPS[self.algo], minibatches=self.minibatches)


@pytest.mark.parametrize("algo", GROUPS)
def test_shuffles_differ_and_mix_environments_and_steps(algo: str) -> None:
    plan = Case(algo, 18, 1 if algo == "ppo" else 6, 8).plan()
    generator, follower = torch.Generator().manual_seed(0), torch.tensor([2])
    first, second = (next(iter(plan.shuffle(follower, generator))) for _ in range(2))
    assert not first.evaluation.equal(second.evaluation)
    again = next(iter(plan.shuffle(follower, torch.Generator().manual_seed(0))))
    assert again.evaluation.equal(first.evaluation)
    rows = plan.rows(first.unit)[0]
    assert len(set((rows // 18).tolist())) == 8
    assert len(set((rows % 18).tolist())) == 18
    # Every policy's units are shuffled, each by itself.
    collector, orders = plan.layout.policy_id, []
    for policy in range(plan.layout.policies):
        own = rows[collector[rows % 18] == policy]
        first_env = collector.tolist().index(policy)
        orders.append([(row // 18, row % 18 - first_env) for row in own.tolist()])
        assert orders[-1] != sorted(orders[-1])
    assert all(one != other for k, one in enumerate(orders) for other in orders[:k])


def test_minibatch_counts_and_sizes_that_do_not_split() -> None:
    """The fact sheet's ⌊rows / 4N⌋ with N = 24,576 and M = 6; and a tenth is a tenth: 3·8 rows in minibatches of 0.1·3
    are 80, though 24 / (0.1·3) is 79.99… in floating point. There is at least one."""
    for (horizon, counts), length in product(((8, (2, 2, 4)), (16, (4, 4, 8))), (1, 4)):
        for algo, count in zip(GROUPS, counts, strict=True):
            assert Case(algo, 24576, 6, horizon, length, minibatches=4.0).plan().minibatches == count
    assert Case("ppo", 30, 1, 8, minibatches=0.1).plan().minibatches == 80
    with pytest.raises(UserError, match="into 80 equal minibatches"):
        Case("ppo", 3, 1, 8, minibatches=0.1).plan()
    assert Case("ppo", 4, 1, 2, minibatches=64.0).plan().minibatches == 1
    for case in (
        *(Case("ppo", 5, 1, 8, 8, 4), Case("ppo", 7, 1, 8, 4, 1.0)),
        *(Case("sapg", 20, 6, 8, 8, 4), Case("sapg", 99, 6, 16, 16, 4.0)),
        # Blocks of 6 and 1: uneven ones have more pull rows, hence another number of minibatches than even ones.
        *(Case("cpo", 11, 6, 16, 16, 4.0), Case("cpo", 100, 6, 16, 1, 7), Case("cpo", 25, 6, 8, 4, 3.0)),
        *(Case("cpo", 29, 3, 12, 6, 1.7), Case("cpo", 7, 7, 8, 8, 4.0)),
    ):
        with pytest.raises(UserError, match="do not split into") as refusal:
            case.plan()
        numbers = re.search(r"num_envs (\d+)(?: or (\d+))? would", str(refusal.value))
        assert numbers is not None
        named = [int(number) for number in numbers.groups() if number]
        assert named[0] < case.num_envs < named[-1] or (len(named) == 1 and named[0] > case.num_envs)
        for num_envs in named:
            replace(case, num_envs=num_envs).plan()


def test_the_follower_is_drawn_uniformly_from_all_but_the_leader() -> None:
    plan, generator = Case("sapg", 12, 4, 2).plan(), torch.Generator().manual_seed(0)
    drawn = Counter(plan.layout.draw_followers(generator).item() for _ in range(600))
    # 200 each are expected, with a deviation of √(600·⅓·⅔) = 11.5.
    assert set(drawn) == {1, 2, 3}
    assert all(150 < count < 250 for count in drawn.values())
    assert Layout(4, 1).draw_followers(generator).tolist() == [1]
    # One per network, by its policy id.
    drawn = torch.stack([Layout(12, 6, networks=2).draw_followers(generator) for _ in range(100)])
    assert set(drawn[:, 0].tolist()) == {1, 2}
    assert set(drawn[:, 1].tolist()) == {4, 5}


def ring(policies: int) -> list[tuple[int, int]]:
    """Everybody learns from the next."""
    return [(k, (k + 1) % policies) for k in range(policies)]


def test_plans_of_all_kinds() -> None:
    """Environments, policies, horizon, sequence; 10 and 14 environments of 3 policies leave a remainder. Then blocks of
    unequal size, several networks, any borrowing."""
    sizes = [(8, 2, 4, 1), (18, 6, 8, 1), (10, 3, 4, 1), (12, 3, 8, 4), (10, 2, 6, 3), (14, 3, 6, 3)]
    for case in [Case(algo, *size) for algo in GROUPS for size in [(8, 1, 4, 1)] * (algo != "sapg") + sizes]:
        for follower in range(1, max(case.policies, 2)):
            check_plan(case.plan(), torch.tensor([follower]))
    for groups, uneven in (
        *((GROUPS["sapg"], (4, 2, 2)), (GROUPS["cpo"], (4, 2, 2)), ((PULL,), (2, 4, 6)), ((), (2, 4, 6))),
        ((Group("all", leader_from_all_followers), PULL), (6, 2, 4)),
        ((Group("ring", ring),), (2, 6, 4)),
    ):
        for networks, follower in product((1, 2), (1, 2)):
            layout = Layout(sum(uneven) * networks, 3 * networks, networks=networks, sizes=uneven)
            drawn = torch.tensor([1, 3 + follower] if networks == 2 else [follower])
            check_plan(Plan(layout, 4, 2, groups, minibatches=2), drawn)


def check_plan(plan: Plan, drawn: Tensor) -> None:
    """A shuffle holds every evaluation once, in minibatches alike, what is shared is the evaluation's own unit, and the
    gradient of sharing is PyTorch's own of plain indexing."""
    networks, generator = plan.layout.networks, torch.Generator().manual_seed(0)
    unit, policy, group = listing(plan, drawn)
    minibatches = list(plan.shuffle(drawn, generator))
    assert len(minibatches) == plan.minibatches == 2
    seen = torch.cat([minibatch.evaluation for minibatch in minibatches])
    assert seen.sort().values.tolist() == list(range(networks * plan.size))
    sharing = plan.sharing(drawn)
    for minibatch in minibatches:
        assert len(minibatch.evaluation) * 2 == networks * plan.size
        # The constant columns say the truth about the evaluations, so shares of groups and policies are equal.
        assert policy[minibatch.evaluation].tolist() == plan.policy_id.flatten().tolist()
        found = [group[k] for k in minibatch.evaluation.tolist()]
        names = [name for name, columns in plan.columns.items() for _ in range(columns.stop - columns.start)]
        assert found == names * networks
        shared = sharing.share(minibatch.unit[None, :, None])[0, :, 0]
        assert shared.tolist() == unit[minibatch.evaluation].tolist()
    x = torch.randn(2, len(minibatches[0].unit), 3, generator=generator, dtype=torch.float64).requires_grad_()
    weight = torch.randn(2, plan.policy_id.numel(), 3, generator=generator, dtype=torch.float64)
    shared, plain = sharing.share(x), x[:, sharing.source]
    assert shared.equal(plain)
    (found,) = torch.autograd.grad((shared * weight).sum(), x)
    (expected,) = torch.autograd.grad((plain * weight).sum(), x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_what_no_plan_can_be_made_of_and_vectors_without_a_reader_are_one_sentence() -> None:
    beyond = Group("beyond", lambda policies: [(0, policies)])
    with pytest.raises(UserError, match="one is drawn need equal numbers of environments, not 2, 4"):
        Plan(Layout(8, 3, sizes=(2, 2, 4)), 4, 1, GROUPS["sapg"], minibatches=2)
    for groups, sentence in (
        ((PULL, BORROWS), "groups that train the critic must come before"),
        ((Group("own", ring),), "two groups are called own"),
        ((BORROWS, Group("leader_borrows", ring)), "two groups are called leader_borrows"),
        ((beyond,), r"beyond has the pair \(0, 3\), but there are 3 policies"),
    ):
        with pytest.raises(UserError, match=sentence):
            Plan(Layout(6, 3), 4, 1, groups, minibatches=2)
    for name, values, sentence in (
        ("clipp", [0.1, 0.2, 0.3], "clipp cannot differ between policies; what can is discount"),
        ("horizon", [8, 8, 8], "horizon cannot differ between policies"),
        ("clip", [0.1, 0.2], r"clip must be a vector of 3 numbers, one per policy, not \[2\]"),
    ):
        with pytest.raises(UserError, match=sentence):
            Settings(UpdateConfig(), Layout(6, 3), {name: torch.tensor(values)})


@pytest.mark.parametrize("length", [1, 4])
def test_a_part_of_every_follower_is_as_much_as_one_and_another_one_each_time(length: int) -> None:
    """Two minibatches of 24·8/2 rows, 4·8/2 of each of five followers: a fifth of those is borrowed, rounded."""
    plan = Plan(Layout(24, 6), 8, length, (BORROWS_OF_EACH,), minibatches=2)
    units = 4 * 8 // length // 2
    assert plan.blocks.sizes == [max(1, units // 5)] * 5
    generator, drawn, seen = torch.Generator().manual_seed(0), torch.tensor([1]), set()
    for _ in range(40):
        for minibatch in plan.shuffle(drawn, generator):
            assert len(minibatch.evaluation) == 6 * units + 5 * max(1, units // 5)
            borrowed = minibatch.evaluation[plan.columns["leader_borrows"]]
            assert (borrowed.view(5, -1) // (units * 2) == torch.arange(5)[:, None] + 6).all()
            shared = plan.sharing(drawn).share(minibatch.unit[None, :, None])[0, :, 0]
            unit, _, _ = listing(plan, drawn)
            assert shared.tolist() == unit[minibatch.evaluation].tolist()
            seen.update(borrowed.tolist())
    assert len(seen) == 5 * units * 2  # in time, every row

"""The stacked population: every member computes what it would alone, and lives in its row of the stacked tensors."""

import pytest
import torch
from torch import Tensor

from echelon.config import ModelConfig
from echelon.models.actor_critic import ActorCritic
from echelon.models.population import Population

SPEC = {"policy": 4, "critic": 6}
TIGHT = {"rtol": 1e-12, "atol": 1e-12}


def build(policies: int = 3, lstm: int = 0, critic: bool = False) -> Population:
    """In float64, with statistics and log sigmas that differ between members."""
    torch.manual_seed(0)
    spec = {name: width for name, width in SPEC.items() if critic or name == "policy"}
    population = Population(spec, 2, policies, ModelConfig(hidden=(8, 5), lstm=lstm)).double()
    for index in range(policies):
        member = population.member(index)
        member.log_std.data.normal_()
        member.value_norm.merge(torch.randn(20, 1) * (index + 2) + index)
        member.merge_observations({name: torch.randn(30, width) * 2 + index for name, width in spec.items()})
    return population


def inputs(population: Population, rows: int, steps: int = 3) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    spec = {name: norm.mean.numel() for name, norm in population.member(0).obs_norm.items()}
    obs = {name: torch.randn(steps, rows, w, generator=generator, dtype=torch.float64) for name, w in spec.items()}
    state = torch.randn(rows, population.state_dim, generator=generator, dtype=torch.float64)
    return obs, state, torch.rand(steps, rows, generator=generator) < 0.3


def alone(member: ActorCritic, obs: dict[str, Tensor], state: Tensor, start: Tensor, rows: Tensor | slice):
    chosen = {name: x[:, rows] for name, x in obs.items()}
    return member(chosen, torch.zeros(len(state[rows]), dtype=torch.int64), state[rows], start[:, rows])


@pytest.mark.parametrize("critic", [False, True])
@pytest.mark.parametrize("lstm", [0, 4])
def test_every_member_says_what_it_would_alone(lstm: int, critic: bool) -> None:
    population = build(lstm=lstm, critic=critic)
    obs, state, start = inputs(population, 6)
    ids = torch.tensor([0, 0, 1, 1, 2, 2])
    output = population(obs, ids, state, start)
    raw = population.raw_value(output.value, ids)
    action = torch.randn(3, 6, 2, dtype=torch.float64)
    for index in range(3):
        rows = slice(2 * index, 2 * index + 2)
        member = population.member(index)
        expected = alone(member, obs, state, start, rows)
        torch.testing.assert_close(output.mean[:, rows], expected.mean, **TIGHT)
        torch.testing.assert_close(output.value[:, rows], expected.value, **TIGHT)
        torch.testing.assert_close(output.state[rows], expected.state, **TIGHT)
        torch.testing.assert_close(raw[:, rows], member.raw_value(expected.value), **TIGHT)
        found = output.log_prob(action)[:, rows]
        torch.testing.assert_close(found, expected.log_prob(action[:, rows]), **TIGHT)
    assert (output.mean[:, :2] - output.mean[:, 2:4]).abs().min() > 1e-6


@pytest.mark.parametrize("lstm", [0, 4])
@pytest.mark.parametrize("ids", [[2, 0, 0, 1], [0, 0, 0, 1, 1, 2], [1]])
def test_rows_in_any_order_find_their_member(lstm: int, ids: list[int]) -> None:
    population = build(lstm=lstm)
    obs, state, start = inputs(population, len(ids))
    output = population(obs, torch.tensor(ids), state, start)
    for row, index in enumerate(ids):
        expected = alone(population.member(index), obs, state, start, slice(row, row + 1))
        torch.testing.assert_close(output.mean[:, row], expected.mean[:, 0], **TIGHT)
        torch.testing.assert_close(output.value[:, row], expected.value[:, 0], **TIGHT)
        torch.testing.assert_close(output.state[row], expected.state[0], **TIGHT)
        torch.testing.assert_close(output.log_std[row], expected.log_std[0], **TIGHT)


@pytest.mark.parametrize("lstm", [0, 4])
@pytest.mark.parametrize("policies", [1, 3])
def test_gradients_land_in_the_row_of_the_member(policies: int, lstm: int) -> None:
    population = build(policies, lstm)
    obs, state, start = inputs(population, 2 * policies)
    ids = torch.arange(policies).repeat_interleave(2)
    output = population(obs, ids, state, start)
    weight = torch.arange(1.0, 2 * policies + 1, dtype=torch.float64)
    action = torch.ones(3, 2 * policies, 2, dtype=torch.float64)
    loss = (weight * (output.value.square() + output.log_prob(action))).sum()
    stacked = torch.cat([x.flatten(1) for x in torch.autograd.grad(loss, list(population.weights.values()))], dim=1)
    for index in range(policies):
        rows = slice(2 * index, 2 * index + 2)
        member = population.member(index)
        expected = alone(member, obs, state, start, rows)
        (weight[rows] * (expected.value.square() + expected.log_prob(action[:, rows]))).sum().backward()
        gradient = torch.cat([p.grad.flatten() for p in member.parameters()])
        torch.testing.assert_close(stacked[index], gradient, rtol=1e-10, atol=1e-12)


def test_members_and_rows_are_the_same_memory() -> None:
    population = build()
    before = [p.detach().clone() for p in population.member(0).parameters()]
    population.flat[1].zero_()
    assert all(p.abs().sum() == 0 for p in population.member(1).parameters())
    assert all(p.equal(old) for p, old in zip(population.member(0).parameters(), before, strict=True))
    # What is loaded, merged or moved to another precision stays stacked too.
    population.load_state_dict(build(lstm=0).state_dict())
    population.float()
    obs, state, start = inputs(population, 3)
    obs, state = {name: x.float() for name, x in obs.items()}, state.float()
    population.merge_observations({"policy": obs["policy"] + torch.arange(3.0)[:, None]})
    population.member(2).log_std.data.fill_(-1.5)
    output = population(obs, torch.arange(3), state, start)
    for index in range(3):
        expected = alone(population.member(index), obs, state, start, slice(index, index + 1))
        torch.testing.assert_close(output.mean[:, [index]], expected.mean, rtol=1e-5, atol=1e-6)
    assert population.log_std[2].tolist() == [-1.5, -1.5]
    assert output.log_std[2].tolist() == [-1.5, -1.5]


def test_each_member_merges_its_own_block() -> None:
    population = build(policies=2)
    counts = [population.member(i).obs_norm["policy"].count.item() for i in range(2)]
    means = [population.member(i).obs_norm["policy"].mean.clone() for i in range(2)]
    obs = torch.cat((torch.full((5, 3, 4), 100.0), torch.full((5, 3, 4), -100.0)), dim=1)
    population.merge_observations({"policy": obs})
    for index, value in enumerate((100.0, -100.0)):
        norm = population.member(index).obs_norm["policy"]
        assert norm.count.item() == counts[index] + 15
        # 15 rows of one value move the mean by 15/(n + 15) of the way there.
        expected = means[index] + (value - means[index]) * 15 / (counts[index] + 15)
        torch.testing.assert_close(norm.mean, expected, **TIGHT)


@pytest.mark.parametrize("lstm", [0, 4])
def test_the_first_member_is_ppos_network(lstm: int) -> None:
    """The same seed draws the same numbers, so a population of one starts where PPO does."""
    config = ModelConfig(hidden=(8, 5), lstm=lstm)
    torch.manual_seed(7)
    expected = ActorCritic({"policy": 4}, 2, 1, config)
    torch.manual_seed(7)
    population = Population({"policy": 4}, 2, 3, config)
    for found, wanted in zip(population.member(0).parameters(), expected.parameters(), strict=True):
        assert found.equal(wanted)
    first, second = (population.member(i).mean_head.weight for i in range(2))
    assert not first.equal(second)

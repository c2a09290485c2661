"""Adam on one flat tensor is PyTorch's Adam on many."""

import copy

import pytest
import torch
from torch import nn

from echelon.learning.optimizer import Adam
from echelon.models.linear import Linear, stack

DATA = torch.randn(16, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(Linear(3, 5), nn.ELU(), Linear(5, 2)).double()


def loss_of(model: nn.Module) -> torch.Tensor:
    return (model(DATA[None]) - 3.0).square().mean()


def values(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("clip", [float("inf"), 0.5])
@pytest.mark.parametrize("fuse", [False, True])
def test_steps_are_pytorchs(fuse: bool, clip: float, traced: None) -> None:
    ours, theirs = network(), network()
    optimizer = Adam(ours.parameters(), 0.01, fuse=fuse)
    assert (optimizer.descend != optimizer._descend) == fuse
    reference = torch.optim.Adam(theirs.parameters(), lr=0.01)
    for step in range(5):
        if step == 3:  # the rate may be moved in place
            optimizer.rate.mul_(0.1)
            reference.param_groups[0]["lr"] = 0.001
        norm = optimizer.step(loss_of(ours), clip)
        reference.zero_grad()
        loss_of(theirs).backward()
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        reference.step()
        assert norm.item() == pytest.approx(expected.item(), rel=1e-12)
        assert norm.item() > 0.5
    torch.testing.assert_close(values(ours), values(theirs), rtol=1e-12, atol=1e-13)


def test_a_parameter_the_loss_does_not_use_has_no_gradient() -> None:
    model = network()
    optimizer = Adam(model.parameters(), 0.01)
    optimizer.backward(loss_of(model))
    assert optimizer.gradient.count_nonzero().item() == 15 + 5 + 10 + 2
    optimizer.backward(model[2].bias.sum())
    assert optimizer.gradient.count_nonzero().item() == 2
    assert model[2].bias.grad.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("steps", [0, 3])
def test_a_saved_optimizer_goes_on_with_parameters_loaded_into_another_model(steps: int) -> None:
    first, second = network(), network(seed=1)
    ours, theirs = Adam(first.parameters(), 0.01), Adam(second.parameters(), 0.5)
    for _ in range(steps):
        ours.step(loss_of(first))
    theirs.step(loss_of(second))
    saved = copy.deepcopy((first.state_dict(), ours.state_dict()))
    second.load_state_dict(saved[0])
    theirs.load_state_dict(saved[1])
    for _ in range(3):
        ours.step(loss_of(first))
        theirs.step(loss_of(second))
    assert theirs.rate.item() == 0.01
    assert values(second).equal(values(first))
    assert not values(first).equal(torch.cat([x.flatten() for x in saved[0].values()]))


@pytest.mark.parametrize("fuse", [False, True])
def test_stacked_networks_step_each_at_its_own_rate_and_limit_or_not_at_all(fuse: bool, traced: None) -> None:
    """Three networks against three optimizers of PyTorch's; the last sits out the second of three steps."""
    alone = [network(seed) for seed in range(3)]
    stacked = network(0)
    stack(stacked, [network(seed) for seed in (1, 2)])
    optimizer = Adam(stacked.parameters(), 0.01, fuse=fuse)
    rates, limits = (0.01, 0.1, 0.003), (0.5, float("inf"), 0.2)
    optimizer.rate.copy_(torch.tensor(rates, dtype=torch.float64))
    references = [torch.optim.Adam(one.parameters(), lr=rate) for one, rate in zip(alone, rates, strict=True)]
    for step in range(3):
        active = torch.tensor([True, True, step != 1])
        loss = (stacked(DATA.repeat(3, 1)[None]) - 3.0).square().unflatten(1, (3, -1)).mean((0, 2, 3)).sum()
        norms = optimizer.step(loss, torch.tensor(limits, dtype=torch.float64), active)
        for one, reference, limit, norm, goes in zip(alone, references, limits, norms, active, strict=True):
            reference.zero_grad()
            loss_of(one).backward()
            expected = nn.utils.clip_grad_norm_(one.parameters(), limit)
            assert norm.item() == pytest.approx(expected.item(), rel=1e-10)
            if goes:
                reference.step()
    for index, one in enumerate(alone):
        found = torch.cat([p.detach()[index].flatten() for p in stacked.parameters()])
        torch.testing.assert_close(found, values(one), rtol=1e-10, atol=1e-12)
    assert optimizer.steps.tolist() == [3, 3, 2]


def test_a_gradient_that_is_not_finite_leaves_no_trace_once_a_network_is_a_copy_of_another() -> None:
    """Also in the padding between parameters, which no gradient is ever copied into."""
    model = network()
    stack(model, [network(1)])
    optimizer = Adam(model.parameters(), 0.01)
    outputs = model(DATA.repeat(2, 1)[None]).unflatten(1, (2, -1)).square().mean((0, 2, 3))
    optimizer.step((outputs * torch.tensor([1.0, float("nan")])).sum())
    assert optimizer.flat[0].isfinite().all()
    assert optimizer.flat[1].isnan().any()
    optimizer.flat[1].copy_(optimizer.flat[0])
    optimizer.copy(0, 1)
    for _ in range(2):
        optimizer.step(model(DATA.repeat(2, 1)[None]).square().mean())
    assert optimizer.flat.isfinite().all()
    assert optimizer.flat[1].equal(optimizer.flat[0])

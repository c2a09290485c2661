"""Adam on one flat tensor is PyTorch's Adam on many."""

import copy

import pytest
import torch
from torch import nn

from echelon.learning.optimizer import Adam

DATA = torch.randn(16, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.ELU(), nn.Linear(5, 2)).double()


def loss_of(model: nn.Module) -> torch.Tensor:
    return (model(DATA) - 3.0).square().mean()


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
    assert model[2].bias.grad.tolist() == [1.0, 1.0]


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

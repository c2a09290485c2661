"""Adam on one flat tensor is PyTorch's Adam on many; the rule that moves its rate, and the KL that drives it."""

import math

import pytest
import torch
from torch import nn

from echelon.config import ModelConfig
from echelon.learning.optimizer import Adam, adapt, aligned_slices, scheduling_kl
from echelon.models.actor_critic import ActorCritic
from echelon.models.linear import Linear, stack

DATA = torch.randn(16, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(Linear(3, 5), nn.ELU(), Linear(5, 2)).double()


def loss_of(model: nn.Module) -> torch.Tensor:
    return (model(DATA[None]) - 3.0).square().mean()


def values(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


SEVERAL = (0.5, math.inf, 0.2)


@pytest.mark.parametrize(("limits", "fuse"), [((math.inf,), False), ((0.5,), False), (SEVERAL, False), (SEVERAL, True)])
def test_steps_are_pytorchs(limits: tuple[float, ...], fuse: bool, traced: None) -> None:
    """One network, or three stacked ones, each at its own rate and limit; the third sits out the second step."""
    several, rates = len(limits) > 1, (0.01, 0.1, 0.003)[: len(limits)]
    alone = [network(seed) for seed in range(len(limits))]
    stacked = network(0)
    stack(stacked, [network(seed) for seed in range(1, len(limits))])
    optimizer = Adam(stacked.parameters(), 0.01, fuse=fuse)
    assert (optimizer.descend != optimizer._descend) == fuse
    if several:
        optimizer.rate.copy_(torch.tensor(rates, dtype=torch.float64))
    references = [torch.optim.Adam(one.parameters(), lr=rate) for one, rate in zip(alone, rates, strict=True)]
    for step in range(5):
        active = [True, True, step != 1][: len(limits)]
        if step == 3:  # the rate may be moved in place
            optimizer.rate.mul_(0.1)
            for reference in references:
                reference.param_groups[0]["lr"] *= 0.1
        outputs = stacked(DATA.repeat(len(limits), 1)[None]).unflatten(1, (len(limits), -1))
        loss = (outputs - 3.0).square().mean((0, 2, 3)).sum()
        given = (torch.tensor(limits, dtype=torch.float64), torch.tensor(active)) if several else limits
        norms = optimizer.step(loss, *given)
        for one, reference, limit, norm, goes in zip(alone, references, limits, norms, active, strict=True):
            reference.zero_grad()
            loss_of(one).backward()
            expected = nn.utils.clip_grad_norm_(one.parameters(), limit)
            assert norm.item() == pytest.approx(expected.item(), rel=1e-12)
            assert norm.item() > 0.5
            if goes:
                reference.step()
    for index, one in enumerate(alone):
        found = torch.cat([p.detach()[index].flatten() for p in stacked.parameters()])
        torch.testing.assert_close(found, values(one), rtol=1e-12, atol=1e-13)
    assert optimizer.steps.tolist() == [5, 5, 4][: len(limits)]


def test_a_parameter_the_loss_does_not_use_has_no_gradient() -> None:
    model = network()
    optimizer = Adam(model.parameters(), 0.01)
    optimizer.backward(loss_of(model))
    assert optimizer.gradient.count_nonzero().item() == 15 + 5 + 10 + 2
    optimizer.backward(model[2].bias.sum())
    assert optimizer.gradient.count_nonzero().item() == 2
    assert model[2].bias.grad.tolist() == [[1.0, 1.0]]


def test_a_gradient_that_is_not_finite_leaves_no_trace_once_a_network_is_a_copy_of_another() -> None:
    """Also in the padding between parameters, which no gradient is ever copied into."""
    model = network()
    stack(model, [network(1)])
    optimizer = Adam(model.parameters(), 0.01)
    outputs = model(DATA.repeat(2, 1)[None]).unflatten(1, (2, -1)).square().mean((0, 2, 3))
    optimizer.step((outputs * torch.tensor([1.0, math.nan])).sum())
    assert optimizer.flat[0].isfinite().all()
    assert optimizer.flat[1].isnan().any()
    optimizer.flat[1].copy_(optimizer.flat[0])
    optimizer.copy(0, 1)
    for _ in range(2):
        optimizer.step(model(DATA.repeat(2, 1)[None]).square().mean())
    assert optimizer.flat.isfinite().all()
    assert optimizer.flat[1].equal(optimizer.flat[0])


@pytest.mark.parametrize("networks", [1, 2])
def test_every_weight_is_aligned_and_keeps_its_values(networks: int) -> None:
    """32, 33 and 1 numbers lie from 0, 32 and 96, as 33 take two lines of 32."""
    assert aligned_slices([32, 33, 1]) == ([slice(0, 32), slice(32, 65), slice(96, 97)], 128)
    model = ActorCritic({"policy": 7}, 3, 4, ModelConfig(hidden=(5, 9)), networks=networks)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = Adam(model.parameters(), 0.1)
    for name, parameter in model.named_parameters():
        assert all(row.storage_offset() % 32 == 0 for row in parameter.detach()), name
        assert parameter.equal(before[name]), name
        assert parameter.untyped_storage().data_ptr() == optimizer.flat.untyped_storage().data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rule_and_the_kl_that_drives_it_by_hand(dtype: torch.dtype) -> None:
    """κ as a multiple of the threshold; exactly half and exactly twice it, and what is no number, keep the rate."""
    cases = [
        *((6e-4, times, 6e-4 * 1.5) for times in (0.0, -1.0, 0.49)),  # the reference's KL can be negative
        *((6e-4, times, 6e-4) for times in (0.5, 0.51, 1.0, 1.99, 2.0, math.nan)),
        *((6e-4, times, 6e-4 / 1.5) for times in (2.01, 3.0)),
        *((1.4e-6, 60.0, 1e-6), (1e-6, 60.0, 1e-6), (9e-3, 0.0, 1e-2), (1e-2, 0.0, 1e-2)),  # limits
        *((1e-6, 0.0, 1.5e-6), (1e-2, 60.0, 1e-2 / 1.5)),
    ]
    rates, times, expected = (torch.tensor(x, dtype=dtype) for x in zip(*cases, strict=True))
    before = rates.clone()
    torch.testing.assert_close(adapt(rates, times * 0.016, threshold=0.016), expected, rtol=1e-6, atol=0)
    assert rates.equal(before)  # new numbers; the caller copies them
    # KL(N(0, 1) ‖ N(1, 2²)) = ln 2 + (1 + 1)/8 - ½; the other way round -ln 2 + (4 + 1)/2 - ½. Terms of 1e-5 aside.
    new = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    ref = torch.ones(1, dtype=torch.float64), torch.full((1,), math.log(2), dtype=torch.float64)
    assert scheduling_kl(*new, *ref).item() == pytest.approx(math.log(2) - 0.25, abs=2e-5)
    assert scheduling_kl(*ref, *new).item() == pytest.approx(2 - math.log(2), abs=5e-5)
    # With them, to the last digit: ln(2 + 1e-5) + 2/(2(4 + 1e-5)) - ½.
    assert scheduling_kl(*new, *ref).item() == pytest.approx(math.log(2 + 1e-5) + 1 / 4.00001 - 0.5, abs=1e-15)
    # Equal policies have the reference's bias.
    # The fact sheet has -0.0023, -0.0098 and -0.040 for 20 actions.
    # ln(1 + 1e-5) ≈ 1e-5 and σ²/(2(σ² + 1e-5)) - ½ ≈ -5e-6/σ² for each action.
    for actions, std in ((20, 0.2), (20, 0.1), (20, 0.05), (46, 0.1), (3, 1.0)):
        log_std = torch.full((actions,), math.log(std), dtype=torch.float64)
        mean = torch.randn(actions, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        found = scheduling_kl(mean, log_std, mean, log_std).item()
        assert found == pytest.approx(actions * (1e-5 - 5e-6 / std**2), rel=5e-3, abs=1e-8)

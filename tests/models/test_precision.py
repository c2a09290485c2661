"""Trunks in bfloat16: near the float32 ones, and float32 again in all that is made of them."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from echelon.config import ModelConfig
from echelon.models.actor_critic import ActorCritic, Output

L, B, D, A = 3, 24, 10, 4


@pytest.fixture(autouse=True)
def plain_cpu_kernels() -> Iterator[None]:
    """oneDNN's bfloat16 kernels need instructions that virtual machines announce and do not have."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


def networks(lstm: int, critic: bool, number: int = 1) -> tuple[ActorCritic, ActorCritic]:
    torch.manual_seed(0)
    spec = {"policy": D} | ({"critic": 6} if critic else {})
    exact = ActorCritic(spec, A, 3, ModelConfig(hidden=(64, 32), lstm=lstm), networks=number)
    rounded = copy.deepcopy(exact)
    rounded.bf16 = True
    return exact, rounded


def outputs(model: ActorCritic, critic: bool = False) -> Output:
    generator = torch.Generator().manual_seed(1)
    obs = {"policy": torch.randn(L, B, D, generator=generator)}
    if critic:
        obs["critic"] = torch.randn(L, B, 6, generator=generator)
    state = 0.1 * torch.randn(B, model.state_dim, generator=generator)
    start = torch.rand(L, B, generator=generator) < 0.2
    return model(obs, torch.arange(3).repeat_interleave(B // 3), state, start)


def flat(model: ActorCritic, output: Output) -> Tensor:
    loss = output.mean.square().mean() + output.value.square().mean()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)])


@pytest.mark.parametrize("lstm", [0, 16])
@pytest.mark.parametrize(("critic", "number"), [(False, 1), (True, 1), (False, 3)])
def test_outputs_and_gradients_are_near_and_float32(lstm: int, critic: bool, number: int) -> None:
    """bfloat16 has 8 bits: outputs to 3 % of their size, gradients to within 5 degrees and 3 % in length."""
    exact, rounded = networks(lstm, critic, number)
    expected, found = outputs(exact, critic), outputs(rounded, critic)
    for name in ("mean", "value", "state"):
        a, b = getattr(expected, name), getattr(found, name)
        assert b.dtype == torch.float32, name
        if a.numel():
            assert (a - b).norm() < 0.03 * a.norm(), name
    assert not expected.mean.equal(found.mean)  # it did something
    assert found.log_std.equal(expected.log_std)
    a, b = flat(exact, expected), flat(rounded, found)
    assert b.dtype == torch.float32
    assert torch.cosine_similarity(a, b, dim=0) > 0.996
    assert b.norm().item() == pytest.approx(a.norm().item(), rel=0.03)


def test_products_are_rounded_and_weights_and_log_probabilities_are_not() -> None:
    exact, rounded = networks(0, False)
    assert all(p.dtype == torch.float32 for p in rounded.parameters())
    output = outputs(rounded)
    assert output.log_prob(output.mean + 0.1).dtype == torch.float32
    for model, kind in ((rounded, torch.bfloat16), (exact, torch.float32)):
        assert model.project({"policy": torch.randn(1, 2, D)}).actor.dtype == kind

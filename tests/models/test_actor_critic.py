"""The actor-critic: conditioning, observations of its own for the critic, storage, and stacked networks."""

import copy
import math

import pytest
import torch
from torch import Tensor

from echelon.config import ModelConfig
from echelon.models.actor_critic import ActorCritic, Output
from echelon.models.linear import stack

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


def build(policies: int = 3, lstm: int = 0, critic: bool = False, seed: int = 0) -> ActorCritic:
    torch.manual_seed(seed)
    spec = {"policy": 4} | ({"critic": 6} if critic else {})
    model = ActorCritic(spec, 2, policies, ModelConfig(hidden=(8, 5), lstm=lstm, phi_dim=3)).double()
    generator = torch.Generator().manual_seed(seed)
    model.log_std.data.normal_(generator=generator)
    for name, width in spec.items():
        model.obs_norm[name].merge(torch.randn(30, width, generator=generator) * 2 + 1)
    return model


def inputs(model: ActorCritic, steps: int = 3, envs: int = 6, seed: int = 9) -> tuple[dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    obs = {
        name: torch.randn(steps, envs, norm.mean.numel(), generator=generator, dtype=torch.float64)
        for name, norm in model.obs_norm.items()
    }
    return obs, torch.randn(envs, model.state_dim, generator=generator, dtype=torch.float64)


def run(model: ActorCritic, obs: dict[str, Tensor], ids: Tensor, state: Tensor) -> Output:
    start = torch.zeros(next(iter(obs.values())).shape[:2], dtype=torch.bool)
    start[1, ::2] = True
    return model(obs, ids, state, start)


@pytest.mark.parametrize("lstm", [0, 4])
def test_critic_observations_reach_the_value_and_nothing_else(lstm: int) -> None:
    model = build(lstm=lstm, critic=True)
    assert model.state_dim == 4 * lstm  # hidden and cell of two trunks
    obs, state = inputs(model)
    obs = {name: x.requires_grad_() for name, x in obs.items()}
    ids = torch.tensor([0, 1, 2, 2, 1, 0])
    output = run(model, obs, ids, state)
    for result, reads, ignores in ((output.mean, "policy", "critic"), (output.value, "critic", "policy")):
        here, elsewhere = torch.autograd.grad(
            result.square().sum(), (obs[reads], obs[ignores]), retain_graph=True, materialize_grads=True
        )
        assert here.abs().amax(-1).min() > 0
        assert elsewhere.abs().max() == 0
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(output.value.square().sum(), list(parameters.values()), allow_unused=True)
    reached = {name for name, g in zip(parameters, gradients, strict=True) if g is not None and g.abs().max() > 0}
    assert reached == {name for name in parameters if name.startswith(("critic.", "value_head."))} | {"phi"}
    # State columns: the actor's hidden and cell first, then the critic's.
    changed = state.clone()
    changed[:, 2 * lstm :] += 1.0
    after = run(model, obs, ids, changed)
    assert after.mean.equal(output.mean)
    assert after.state[:, : 2 * lstm].equal(output.state[:, : 2 * lstm])
    assert not lstm or (after.value - output.value)[0].abs().min() > 1e-6


def test_observations_are_normalised_and_clipped_on_the_way_in() -> None:
    model = build(policies=1)
    assert model.phi is None  # one policy has no vector
    obs, state = inputs(model)
    ids = torch.zeros(6, dtype=torch.int64)
    norm = model.obs_norm["policy"]
    hidden = ((obs["policy"] - norm.mean) / (norm.var + 1e-5).sqrt()).clamp(-5, 5)
    for layer in (model.actor.observe, *model.actor.layers):
        hidden = torch.nn.functional.elu(layer(hidden))
    output = run(model, obs, ids, state)
    heads = model.mean_head(hidden), model.value_head(hidden)[..., 0]
    torch.testing.assert_close((output.mean, output.value), heads, **TIGHT)
    assert output.log_std.shape == (1, 2)
    far, further = (run(model, {"policy": obs["policy"] + away}, ids, state).mean for away in (1e6, 1e7))
    torch.testing.assert_close(far, further, **TIGHT)


def test_heads_and_tables_initialisation() -> None:
    torch.manual_seed(0)
    model = ActorCritic({"policy": 4}, 30, 20, ModelConfig(hidden=(64, 100), phi_dim=32))
    assert model.log_std.shape == (20, 30)
    assert not model.log_std.any()  # σ = 1
    assert model.phi is not None
    assert model.phi.shape == (1, 20, 32)
    assert model.phi.mean().abs() < 0.1  # 640 numbers: three standard errors are 0.12
    assert abs(model.phi.std() - 1) < 0.1
    for head in (model.mean_head, model.value_head):
        assert not head.bias.any()
        assert 0.09 < head.weight.abs().max() <= 1 / math.sqrt(100)
    # The first of stacked networks is the one that the seed gives, so a population of one starts where PPO does.
    for lstm in (0, 4):
        models = []
        for networks in (1, 3):
            torch.manual_seed(7)
            config = ModelConfig(hidden=(8, 5), lstm=lstm)
            models.append(ActorCritic({"policy": 4}, 2, networks, config, networks=networks))
        assert all(x[:1].equal(y) for y, x in zip(*(model.parameters() for model in models), strict=True))
        assert not models[1].mean_head.weight[0].equal(models[1].mean_head.weight[1])


@pytest.mark.parametrize(
    ("policies", "lstm", "critic"), [(1, 0, False), (1, 4, True), (2, 0, True), (2, 4, False), (2, 4, True)]
)
def test_stacked_networks_compute_what_each_does_alone(policies: int, lstm: int, critic: bool) -> None:
    """Outputs, raw values and gradients of three networks with one or two policies each; and what each merges."""
    alone = [build(policies, lstm, critic, seed) for seed in range(3)]
    for index, model in enumerate(alone):
        model.value_norm.merge(torch.randn(20, 1) * (index + 2) + index)
    stacked = build(policies, lstm, critic, seed=0)
    stack(stacked, [copy.deepcopy(model) for model in alone[1:]])
    stacked.networks, stacked.policies = 3, 3 * policies
    stacked.value_norm.load_state_dict(
        {name: torch.cat([getattr(model.value_norm, name) for model in alone]) for name in ("mean", "var", "count")}
    )
    data = [inputs(model, seed=seed) for seed, model in enumerate(alone)]
    obs = {name: torch.cat([x[name] for x, _ in data], dim=1) for name in data[0][0]}
    within = torch.arange(6) % policies
    ids = torch.cat([network * policies + within for network in range(3)])
    start = torch.zeros(3, 18, dtype=torch.bool)
    start[1, ::2] = True

    def loss(output: Output) -> Tensor:
        return (output.mean.square() * output.log_std.exp()).sum() + output.value.sin().sum()

    output = stacked(obs, ids, torch.cat([state for _, state in data]), start)
    raw = stacked.raw_value(output.value)
    gradients = torch.autograd.grad(loss(output), list(stacked.parameters()))
    stacked.merge_observations(obs)
    for i, (model, (own_obs, state)) in enumerate(zip(alone, data, strict=True)):
        rows = slice(6 * i, 6 * i + 6)
        expected = model(own_obs, within, state, start[:, rows])
        found = output.mean[:, rows], output.value[:, rows], output.state[rows], output.log_std[rows], raw[:, rows]
        wanted = expected.mean, expected.value, expected.state, expected.log_std.expand(6, -1)
        torch.testing.assert_close(found, (*wanted, model.raw_value(expected.value)), **TIGHT)
        twins = [twin[0] for twin in torch.autograd.grad(loss(expected), list(model.parameters()))]
        torch.testing.assert_close([found[i] for found in gradients], twins, rtol=1e-10, atol=1e-11)
        model.merge_observations(own_obs)
        torch.testing.assert_close([x[i] for x in stacked.buffers()], [x[0] for x in model.buffers()], **TIGHT)
        found = stacked.only(i)(own_obs, within, state, start[:, rows])
        torch.testing.assert_close(found.mean, model(own_obs, within, state, start[:, rows]).mean, **TIGHT)


def near(lstm: int, critic: bool, number: int = 1) -> list[tuple[ActorCritic, Output]]:
    """The same networks, in float32 and with trunks in bfloat16, and what they say about the same rows."""
    torch.manual_seed(0)
    spec = {"policy": 10} | ({"critic": 6} if critic else {})
    exact = ActorCritic(spec, 4, 3, ModelConfig(hidden=(64, 32), lstm=lstm), networks=number)
    rounded = copy.deepcopy(exact)
    rounded.bf16 = True
    generator = torch.Generator().manual_seed(1)
    obs = {name: torch.randn(3, 24, width, generator=generator) for name, width in spec.items()}
    state = 0.1 * torch.randn(24, exact.state_dim, generator=generator)
    start = torch.rand(3, 24, generator=generator) < 0.2
    ids = torch.arange(3).repeat_interleave(8)
    # oneDNN's bfloat16 kernels need instructions that virtual machines announce and do not have.
    with torch.backends.mkldnn.flags(enabled=False):
        return [(model, model(obs, ids, state, start)) for model in (exact, rounded)]


def slope(model: ActorCritic, output: Output) -> Tensor:
    loss = output.mean.square().mean() + output.value.square().mean()
    with torch.backends.mkldnn.flags(enabled=False):
        gradients = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.parametrize("lstm", [0, 16])
@pytest.mark.parametrize(("critic", "number"), [(False, 1), (True, 1), (False, 3)])
def test_trunks_in_bfloat16_are_near_and_the_rest_is_float32(lstm: int, critic: bool, number: int) -> None:
    """bfloat16 has 8 bits: outputs to 3 % of their size, gradients to within 5 degrees and 3 % in length."""
    (exact, expected), (rounded, found) = near(lstm, critic, number)
    for name in ("mean", "value", "state"):
        a, b = getattr(expected, name), getattr(found, name)
        assert b.dtype == torch.float32, name
        assert not a.numel() or (a - b).norm() < 0.03 * a.norm(), name
    assert not expected.mean.equal(found.mean)  # it did something
    assert found.log_std.equal(expected.log_std)
    assert found.log_prob(found.mean + 0.1).dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in rounded.parameters())
    a, b = slope(exact, expected), slope(rounded, found)
    assert b.dtype == torch.float32
    assert torch.cosine_similarity(a, b, dim=0) > 0.996
    assert b.norm().item() == pytest.approx(a.norm().item(), rel=0.03)
    if number == 1:
        obs = {name: torch.randn(1, 2, norm.mean.shape[1]) for name, norm in exact.obs_norm.items()}
        with torch.backends.mkldnn.flags(enabled=False):
            products = [model.project(obs).actor.dtype for model in (rounded, exact)]
        assert products == [torch.bfloat16, torch.float32]

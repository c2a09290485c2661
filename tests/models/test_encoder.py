"""Images before the trunk: against PyTorch's layers, in stacked networks, a module of one's own, and that it learns."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from echelon import NullView, evaluate, read_metrics, train
from echelon.config import ModelConfig
from echelon.envs.contract import Image
from echelon.errors import UserError
from echelon.models import encoder as encoders
from echelon.models.actor_critic import ActorCritic

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from images import SETTINGS, Dots

TIGHT = {"rtol": 1e-10, "atol": 1e-10}
SPEC = {"policy": 3, "image": (2, 7, 6)}
SMALL = ModelConfig(hidden=(5,), channels=(4, 3), phi_dim=2)


def make_own(sizes: dict[str, object]) -> nn.Module:
    """The hook's example: everything it sees in one linear layer and a tanh."""
    assert sizes == SPEC
    return Own()


def make_batch_norm(sizes: dict[str, object]) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3 + 2 * 7 * 6, 4)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, groups: dict[str, Tensor]) -> Tensor:
        both = torch.cat((groups["policy"], groups["image"].flatten(1)), dim=1)
        return torch.tanh(self.layer(both)) + self.get_buffer("shift")


def groups(rows: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image = torch.randint(0, 256, (2, rows, 2, 7, 6), generator=generator, dtype=torch.uint8)
    return {"policy": torch.randn(2, rows, 3, generator=generator, dtype=torch.float64), "image": image}


def build(config: ModelConfig = SMALL, policies: int = 1, networks: int = 1) -> ActorCritic:
    torch.manual_seed(1)
    return ActorCritic(SPEC, 2, policies, config, networks=networks).double()


def outputs(model: ActorCritic, obs: dict[str, Tensor], ids: Tensor) -> Tensor:
    """Means and values, which gradients are taken of."""
    rows = len(ids)
    found = model(obs, ids, torch.zeros(rows, 0, dtype=torch.float64), torch.zeros(2, rows, dtype=torch.bool))
    return torch.cat((found.mean, found.value[..., None]), dim=-1)


def test_numbers_and_gradients_are_those_of_pytorchs_own_layers() -> None:
    """A picture of 7 by 6 becomes 4 by 3, then 2 by 2; 3 channels of it and 3 numbers are 15 inputs of the trunk."""
    model = build()
    theirs = nn.Sequential(
        nn.Conv2d(2, 4, 3, 2, 1), nn.ELU(), nn.Conv2d(4, 3, 3, 2, 1), nn.ELU(), nn.Flatten()
    ).double()
    assert isinstance(model.encoder, encoders.Convolutions)
    for mine, layer in zip(model.encoder.layers, (theirs[0], theirs[2]), strict=True):
        mine.bias.data.normal_()
        layer.weight.data.copy_(mine.weight[0])
        layer.bias.data.copy_(mine.bias[0])
    obs = groups(4)
    outputs(model, obs, torch.zeros(4, dtype=torch.long)).square().sum().backward()
    seen = theirs(obs["image"].flatten(0, 1).double() / 255).unflatten(0, (2, 4))
    x = torch.cat((model.obs_norm["policy"](obs["policy"]), seen), dim=-1)
    assert x.shape[-1] == model.encoder.features == 15
    features = nn.functional.elu(model.actor.observe(x))
    expected = torch.cat((model.mean_head(features), model.value_head(features)), dim=-1)
    found = outputs(model, obs, torch.zeros(4, dtype=torch.long))
    torch.testing.assert_close(found, expected, **TIGHT)
    expected.square().sum().backward()
    for mine, layer in zip(model.encoder.layers, (theirs[0], theirs[2]), strict=True):
        wanted = layer.weight.grad, layer.bias.grad
        torch.testing.assert_close((mine.weight.grad[0], mine.bias.grad[0]), wanted, **TIGHT)


@pytest.mark.parametrize("encoder", [None, "models.test_encoder:make_own"])
def test_stacked_networks_are_each_by_itself_and_a_rollout_is_looked_at_in_parts(
    encoder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacked = build(replace(SMALL, encoder=encoder), policies=6, networks=3)
    obs, ids = groups(12), torch.arange(6).repeat_interleave(2)
    whole = outputs(stacked, obs, ids)
    for network in range(3):
        rows = slice(4 * network, 4 * network + 4)
        alone = outputs(stacked.only(network), {name: x[:, rows] for name, x in obs.items()}, ids[:4])
        torch.testing.assert_close(whole[:, rows], alone, **TIGHT)
    monkeypatch.setattr(encoders, "CHUNK", 3)
    with torch.no_grad():
        torch.testing.assert_close(outputs(stacked, obs, ids), whole.detach(), **TIGHT)


def test_a_module_of_ones_own_by_hand_and_float_images_as_they_are() -> None:
    model, obs = build(replace(SMALL, encoder="models.test_encoder:make_own")), groups(4)
    assert model.encoder is not None
    assert model.encoder.features == 4
    state = model.state_dict()
    flat = torch.cat((model.obs_norm["policy"](obs["policy"]), obs["image"].flatten(2).double() / 255), dim=-1)
    expected = torch.tanh(flat @ state["encoder.layer__weight"][0].T + state["encoder.layer__bias"][0]) + 1
    seen = {"policy": model.obs_norm["policy"](obs["policy"]), "image": obs["image"].double() / 255}
    torch.testing.assert_close(model.encoder(seen), expected, **TIGHT)
    assert "encoder.shift" not in dict(model.named_parameters())
    spec = {"image": Image(1, 4, 4, floats=True)}
    model = ActorCritic(spec, 1, 1, ModelConfig(hidden=(3,), channels=(2,)))
    image = torch.rand(1, 5, 1, 4, 4)
    assert model.encoder is not None
    torch.testing.assert_close(model.project({"image": image}).actor, model.encoder({"image": image}))


@pytest.mark.parametrize(
    ("spec", "encoder", "message"),
    [
        ({"critic": 3}, None, "the policy needs a group policy"),
        ({"policy": (3, 8, 8)}, None, "no other group may be an image"),
        ({"policy": 3}, "models.test_encoder:make_batch_norm", "batch normalisation or dropout"),
        ({"policy": 3}, "torch.nn:Identity", "not a torch.nn.Module with weights to train"),
        ({"policy": 3}, "torch.nn:Nothing", "torch.nn:Nothing cannot be found"),
    ],
)
def test_what_cannot_be_an_encoder_is_one_sentence(spec: dict, encoder: str | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ActorCritic(spec, 2, 1, replace(SMALL, encoder=encoder))


def test_activation_and_first_sigma() -> None:
    config = ModelConfig(hidden=(4, 4), phi_dim=2, activation="tanh", initial_sigma=0.5)
    model = ActorCritic({"policy": 3}, 2, 3, config)
    assert model.log_std.exp().allclose(torch.tensor(0.5))
    obs, ids, start = torch.randn(1, 5, 3), torch.tensor([0, 1, 2, 0, 1]), torch.zeros(1, 5, dtype=torch.bool)
    assert model.phi is not None and model.actor.condition is not None  # noqa: PT018
    first = model.actor.observe(model.obs_norm["policy"](obs)) + model.phi[0, ids] @ model.actor.condition.weight[0].T
    features = torch.tanh(model.actor.layers[0](torch.tanh(first)))
    found = model({"policy": obs}, ids, torch.zeros(5, 0), start)
    torch.testing.assert_close(found.mean, model.mean_head(features))


def test_images_are_stored_in_a_byte_a_number_and_learned_from(tmp_path: Path) -> None:
    """By chance the dots stay about 0.9 apart over 30 steps, a return near -27; after 25,000 steps near -11."""
    folder = train(replace(SETTINGS, env_steps=25_000, out=str(tmp_path / "run")), NullView(), Dots)
    first = next(x["return/leader"] for x in read_metrics(folder) if x["return/leader"] == x["return/leader"])
    score = evaluate(folder, make_env=Dots).scores[0].return_mean
    assert first < -20
    assert score > -15


@pytest.mark.parametrize("algo", ["cpo", "pbt"])
def test_ensembles_and_populations_see_images_too(algo: str, tmp_path: Path) -> None:
    """And a resumed run continues to the bit."""
    update = replace(SETTINGS.update, horizon=8, minibatches=2, mini_epochs=1)
    small = replace(SETTINGS, algo=algo, policies=3, num_envs=12, update=update)
    runs = [replace(small, iterations=4, out=str(tmp_path / "whole"))]
    runs += [replace(small, iterations=iterations, out=str(tmp_path / "parts")) for iterations in (2, 4)]
    whole, _, parts = (list(read_metrics(train(run, NullView(), Dots)))[-1] for run in runs)
    assert whole["loss/critic"] == parts["loss/critic"]

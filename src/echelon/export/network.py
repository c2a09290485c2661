"""One policy's network, alone: normaliser, conditioning and action bounds inside."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from echelon.models.actor_critic import ActorCritic
from echelon.models.encoder import Encoder, scaled
from echelon.models.linear import Linear
from echelon.models.normaliser import Normaliser
from echelon.models.trunk import ACTIVATIONS


@torch.no_grad()
def weights_of(model: ActorCritic, policy: int, bounds: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
    """Weights of one policy, float32 on the CPU. φ only shifts the first layer, so it is added to its bias.

    `bounds` has `low` and `high` of the environment's actions; -1 and 1 without it.
    """
    each = model.policies // model.networks
    network, policy = policy // each, policy % each
    model = model.only(network).cpu().float()
    trunk = model.actor
    bias = trunk.observe.bias[0]
    if trunk.lstm:
        bias = bias + trunk.recur.bias[0]
    if trunk.condition is not None and model.phi is not None:
        bias = bias + trunk.condition.weight[0] @ model.phi[0, policy]
    found: dict[str, Tensor] = {}
    if "policy" in model.obs_norm:
        norm = model.obs_norm["policy"]
        assert isinstance(norm, Normaliser)
        found = {"obs_mean": norm.mean[0], "obs_std": norm.std[0], "obs_clip": torch.tensor(norm.clip)}
    found |= {
        "first_weight": trunk.observe.weight[0],
        "first_bias": bias,
        "mean_weight": model.mean_head.weight[0],
        "mean_bias": model.mean_head.bias[0],
        "action_low": torch.as_tensor(bounds["low"]) if bounds else -torch.ones(model.mean_head.out_features),
        "action_high": torch.as_tensor(bounds["high"]) if bounds else torch.ones(model.mean_head.out_features),
    }
    if trunk.lstm:
        found["recur_weight"] = trunk.recur.weight[0]
        found["norm_weight"], found["norm_bias"] = trunk.norm.weight[0], trunk.norm.bias[0]
    for number, layer in enumerate(trunk.layers):
        assert isinstance(layer, Linear)
        found[f"layer_{number}_weight"], found[f"layer_{number}_bias"] = layer.weight[0], layer.bias[0]
    return {name: x.detach().float().clone() for name, x in found.items()}


class PolicyNetwork(nn.Module):
    """From observations `[B, D]`, images or both to actions `[B, A]` at the policy's mean; with an LSTM, from and to
    its state `[B, S]` as well, which is zero where an episode begins."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        activation: str = "elu",
        encoder: Encoder | None = None,
        image: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.activate = encoder, ACTIVATIONS[activation]
        for name, x in weights.items():
            self.register_buffer(name, x)
        self.layers = sum(name.startswith("layer_") for name in weights) // 2
        self.recurrent = "recur_weight" in weights
        self.sizes: dict[str, tuple[int, ...]] = {}
        """Shapes of what it takes, in order and by name."""
        if "obs_mean" in weights:
            self.sizes["obs"] = tuple(weights["obs_mean"].shape)
            self.clip = float(weights["obs_clip"])
        if image is not None:
            self.sizes["image"] = tuple(image)
        if self.recurrent:
            self.sizes["state"] = (self.state_dim,)
        low, high = weights["action_low"], weights["action_high"]
        unlimited = torch.isinf(low) | torch.isinf(high)
        self.has_unlimited = bool(unlimited.any())
        self.unlimited = nn.Buffer(unlimited)
        self.action_centre = nn.Buffer(((low + high) / 2).masked_fill(unlimited, 0.0))
        self.action_reach = nn.Buffer(((high - low) / 2).masked_fill(unlimited, 1.0))

    @property
    def state_dim(self) -> int:
        return 2 * self.get_buffer("recur_weight").shape[1] if self.recurrent else 0

    def forward(self, first: Tensor, second: Tensor | None = None, third: Tensor | None = None) -> Any:
        """Inputs in the order of `sizes`."""
        get = self.get_buffer
        given = dict(zip(self.sizes, (first, second, third), strict=False))
        state = given.get("state")
        x = linear(self._seen(given), get("first_weight"), get("first_bias"))
        if self.recurrent:
            assert state is not None
            hidden, cell = state.chunk(2, dim=-1)
            enter, forget, candidate, leave = (x + hidden @ get("recur_weight").T).chunk(4, dim=-1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
            hidden = leave.sigmoid() * cell.tanh()
            state = torch.cat((hidden, cell), dim=-1)
            x = layer_norm(hidden, hidden.shape[-1:], get("norm_weight"), get("norm_bias"))
        else:
            x = self.activate(x)
        for number in range(self.layers):
            x = self.activate(linear(x, get(f"layer_{number}_weight"), get(f"layer_{number}_bias")))
        x = linear(x, get("mean_weight"), get("mean_bias"))
        action = self.action_centre + self.action_reach * x.clamp(-1.0, 1.0)
        if self.has_unlimited:
            action = torch.where(self.unlimited, x, action)
        return (action, state) if self.recurrent else action

    def _seen(self, given: Mapping[str, Any]) -> Tensor:
        """Input of the trunk `[B, V]`."""
        groups: dict[str, Tensor] = {}
        if "obs" in given:
            obs = (given["obs"] - self.get_buffer("obs_mean")) / self.get_buffer("obs_std")
            groups["policy"] = obs.clamp(-self.clip, self.clip)
        if self.encoder is None:
            return groups["policy"]
        if "image" in given:
            groups["image"] = scaled(given["image"], torch.float32)
        return self.encoder({name: x[None] for name, x in groups.items()})[0]

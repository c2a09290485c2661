"""A trained policy alone: as a network with normaliser, conditioning and action bounds inside, and as a function."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from echelon.envs.contract import Image, shape_of
from echelon.errors import UserError
from echelon.models.actor_critic import Networks
from echelon.models.encoder import scaled
from echelon.models.normaliser import Normaliser
from echelon.models.trunk import ACTIVATIONS
from echelon.runs.checkpoint import Which
from echelon.runs.folder import RunFolder
from echelon.runs.trained import Trained

Array = TypeVar("Array", np.ndarray, Tensor)


class SavedPolicy(nn.Module):
    """One policy of a checkpoint: from observations `[B, D]`, images or both to actions `[B, A]` at its mean; with an
    LSTM, from and to its state `[B, S]` as well, which is zero where an episode begins."""

    def __init__(self, trained: Trained, number: int) -> None:
        super().__init__()
        self.trained, self.number = trained, number
        model, interface = trained.model, trained.interface
        each = model.policies // model.networks
        alone = model.only(number // each).cpu().float()
        self.weights = weights = _weights(alone, number % each, interface.get("bounds"))
        """By name, float32 on the CPU."""
        for name, x in weights.items():
            self.register_buffer(name, x)
        self.encoder, self.activation, self.squashed = alone.encoder, alone.activation, alone.squashed
        self.layers = sum(bool(re.fullmatch(r"layer_\d+_weight", name)) for name in weights)
        self.state_dim = 2 * weights["recur_weight"].shape[1] if "recur_weight" in weights else 0
        found = interface["obs_spec"].get("image")
        self.image = Image(*found) if found else None
        self.sizes: dict[str, tuple[int, ...]] = {}
        """Shapes of what it takes, in order and by name."""
        if "obs_mean" in weights:
            self.sizes["obs"] = tuple(weights["obs_mean"].shape)
            self.clip = float(weights["obs_clip"])
        if self.image is not None:
            self.sizes["image"] = shape_of(self.image)
        if self.state_dim:
            self.sizes["state"] = (self.state_dim,)
        low, high = weights["action_low"], weights["action_high"]
        self.unlimited = nn.Buffer(torch.isinf(low) | torch.isinf(high))
        self.action_centre = nn.Buffer(((low + high) / 2).masked_fill(self.unlimited, 0.0))
        self.action_reach = nn.Buffer(((high - low) / 2).masked_fill(self.unlimited, 1.0))

    @staticmethod
    def load(run: RunFolder | str | Path, policy: str | int = "leader", checkpoint: Which = "newest") -> "SavedPolicy":
        """`policy` is `leader` or a number."""
        trained = Trained.load(run, checkpoint)
        return SavedPolicy(trained, trained.number(policy)).eval()

    def forward(self, first: Tensor, second: Tensor | None = None, third: Tensor | None = None) -> Any:
        """Inputs in the order of `sizes`."""
        get, activate = self.get_buffer, ACTIVATIONS[self.activation]
        given: dict[str, Any] = dict(zip(self.sizes, (first, second, third), strict=False))
        state, groups = given.get("state"), dict[str, Tensor]()
        if "obs" in given:
            groups["policy"] = ((given["obs"] - get("obs_mean")) / get("obs_std")).clamp(-self.clip, self.clip)
        if "image" in given:
            groups["image"] = scaled(given["image"], torch.float32)
        seen = self.encoder({name: x[None] for name, x in groups.items()})[0] if self.encoder else groups["policy"]
        x = linear(seen, get("first_weight"), get("first_bias"))
        if state is not None:
            hidden, cell = state.chunk(2, dim=-1)
            enter, forget, candidate, leave = (x + hidden @ get("recur_weight").T).chunk(4, dim=-1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
            hidden = leave.sigmoid() * cell.tanh()
            state = torch.cat((hidden, cell), dim=-1)
            x = layer_norm(hidden, hidden.shape[-1:], get("norm_weight"), get("norm_bias"))
        else:
            x = activate(self._normed(x, "first"))
        for number in range(self.layers):
            x = linear(x, get(f"layer_{number}_weight"), get(f"layer_{number}_bias"))
            x = activate(self._normed(x, f"layer_{number}"))
        x = linear(x, get("mean_weight"), get("mean_bias"))
        x = x.tanh() if self.squashed else x
        action = torch.where(self.unlimited, x, self.action_centre + self.action_reach * x.clamp(-1.0, 1.0))
        return action if state is None else (action, state)

    def _normed(self, x: Tensor, layer: str) -> Tensor:
        """A layer's output through its normalisation, if it has one."""
        if f"{layer}_norm_weight" not in self.weights:
            return x
        weight, bias = (self.get_buffer(f"{layer}_norm_{name}") for name in ("weight", "bias"))
        return layer_norm(x, x.shape[-1:], weight, bias)


@torch.no_grad()
def _weights(model: Networks, policy: int, bounds: Mapping[str, Any] | None) -> dict[str, Tensor]:
    """Weights of a policy of one network, statistics of its observations, and limits of its actions. `bounds` has `low`
    and `high` of the environment's actions; -1 and 1 without it."""
    found = model.weights(policy)
    unit = torch.ones(len(found["mean_bias"]))
    found["action_low"] = torch.as_tensor(bounds["low"]) if bounds else -unit
    found["action_high"] = torch.as_tensor(bounds["high"]) if bounds else unit
    if "policy" in model.obs_norm:
        norm = model.obs_norm["policy"]
        assert isinstance(norm, Normaliser)
        found |= {"obs_mean": norm.mean[0], "obs_std": norm.std[0], "obs_clip": torch.tensor(norm.clip)}
    return {name: x.detach().float().clone() for name, x in found.items()}


class Policy:
    """A policy as a function of observations, NumPy or torch, `[D]` or `[N, D]`; it acts at its mean.

    One that sees images takes them, `[C, H, W]` or `[N, C, H, W]`, as the environment gives them; one that sees numbers
    too takes a dict of `policy` and `image`. In a dict, groups that the policy does not see are ignored.

    With an LSTM it keeps its memory between calls: call `reset()` where an episode begins.
    """

    def __init__(self, network: SavedPolicy) -> None:
        self.network, self._state = network, None

    def reset(self) -> None:
        """Forget what was seen."""
        self._state = None

    @torch.no_grad()
    def __call__(self, obs: Array | Mapping[str, Array]) -> Array:
        """Actions in the units of the environment, of the same kind and on the same device as the observations."""
        network, shapes = self.network, dict(self.network.sizes)
        width = shapes.pop("state", (0,))[0]
        groups: dict[str, Any] = dict(obs) if isinstance(obs, Mapping) else {next(iter(shapes)): obs}
        groups = {"obs" if name == "policy" else name: x for name, x in groups.items()}
        if not set(shapes) <= set(groups):
            sees = ["policy" if name == "obs" else name for name in shapes]
            how = "a dict of both" if len(sees) > 1 else "that, alone or in a dict"
            raise UserError(f"this policy sees {' and '.join(sees)}: give it {how}")
        found = [_tensor(name, groups[name], shape) for name, shape in shapes.items()]
        several = found[0].ndim > len(next(iter(shapes.values())))
        inputs = [x if several else x[None] for x in found]
        network.to(inputs[0].device)
        if width:
            if self._state is None or len(self._state) != len(inputs[0]):
                self._state = torch.zeros(len(inputs[0]), width, device=inputs[0].device)
            action, self._state = network(*inputs, self._state)
        else:
            action = network(*inputs)
        action = action if several else action[0]
        return action if isinstance(groups[next(iter(shapes))], Tensor) else action.numpy()


def _tensor(name: str, x: Any, shape: tuple[int, ...]) -> Tensor:
    """One observation of this shape, or several."""
    x = torch.as_tensor(x)
    x = x if x.dtype is torch.uint8 and name == "image" else x.float()
    if x.ndim not in (len(shape), len(shape) + 1) or x.shape[-len(shape) :] != shape:
        sizes = ", ".join(map(str, shape))
        what = "observations" if name == "obs" else "images"
        raise UserError(f"{what} are [{sizes}] or [N, {sizes}], not {list(x.shape)}")
    return x


def load_policy(run: Any, policy: str | int = "leader", checkpoint: Which = "newest") -> Policy:
    """The policy of a run, given by its folder: `leader`, or a number."""
    return Policy(SavedPolicy.load(run, policy, checkpoint))

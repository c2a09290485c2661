"""A trained policy as a function: `echelon.load_policy(RUN)`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from echelon.envs.contract import Image, shape_of
from echelon.errors import UserError
from echelon.evaluation.trained import Trained
from echelon.export.network import PolicyNetwork, weights_of
from echelon.runs.checkpoint import Which
from echelon.runs.folder import RunFolder

Array = TypeVar("Array", np.ndarray, Tensor)


@dataclass(frozen=True)
class SavedPolicy:
    """One policy of a run's checkpoint."""

    trained: Trained
    number: int

    @staticmethod
    def load(run: RunFolder | str | Path, policy: str | int = "leader", checkpoint: Which = "newest") -> "SavedPolicy":
        """`policy` is `leader` or a number."""
        trained = Trained.load(run, checkpoint)
        number = trained.leader if policy == "leader" else policy
        if not str(number).isdecimal() or int(number) >= trained.model.policies:
            raise UserError(f"the policy is leader or a number from 0 to {trained.model.policies - 1}, not {policy}")
        return SavedPolicy(trained, int(number))

    @property
    def image(self) -> Image | None:
        """Size of the images it sees, if it does."""
        found = self.trained.interface["obs_spec"].get("image")
        return Image(*found) if found else None

    def weights(self) -> dict[str, Tensor]:
        """Its weights and the bounds of its actions, by name."""
        return weights_of(self.trained.model, self.number, self.trained.interface.get("bounds"))

    def network(self) -> PolicyNetwork:
        """Its network alone."""
        model, image = self.trained.model, self.image
        alone = model.only(self.number // (model.policies // model.networks)).cpu().float()
        shape = shape_of(image) if image else None
        return PolicyNetwork(self.weights(), alone.actor.activation, alone.encoder, shape).eval()


class Policy:
    """A policy as a function of observations, NumPy or torch, `[D]` or `[N, D]`; it acts at its mean.

    One that sees images takes them, `[C, H, W]` or `[N, C, H, W]`, as the environment gives them; one that sees numbers
    too takes a dict of `policy` and `image`.

    With an LSTM it keeps its memory between calls: call `reset()` where an episode begins.
    """

    def __init__(self, network: PolicyNetwork) -> None:
        self.network, self._state = network, None

    def reset(self) -> None:
        """Forget what was seen."""
        self._state = None

    @torch.no_grad()
    def __call__(self, obs: Array | Mapping[str, Array]) -> Array:
        """Actions in the units of the environment, of the same kind and on the same device as the observations."""
        shapes = {name: shape for name, shape in self.network.sizes.items() if name != "state"}
        groups = {"obs" if name == "policy" else name: x for name, x in obs.items()} if isinstance(obs, Mapping) else {}
        if not isinstance(obs, Mapping) and len(shapes) == 1:
            groups = {next(iter(shapes)): obs}
        if set(groups) != set(shapes):
            raise UserError("this policy sees policy and image: give it a dict of both")
        found = [_tensor(name, groups[name], shape) for name, shape in shapes.items()]
        several = found[0].ndim > len(next(iter(shapes.values())))
        action = self._act([x if several else x[None] for x in found])
        action = action if several else action[0]
        first: Any = next(iter(groups.values()))
        return action if isinstance(first, Tensor) else action.numpy()  # pyright: ignore[reportReturnType]  # as it came

    def _act(self, obs: list[Tensor]) -> Tensor:
        self.network.to(obs[0].device)
        if not self.network.recurrent:
            return self.network(*obs)
        if self._state is None or self._state.shape[0] != len(obs[0]):
            self._state = torch.zeros(len(obs[0]), self.network.state_dim, device=obs[0].device)
        action, self._state = self.network(*obs, self._state)
        return action


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
    return Policy(SavedPolicy.load(run, policy, checkpoint).network())

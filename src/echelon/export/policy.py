"""A trained policy as a function: `echelon.load_policy(RUN)`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from echelon.algorithms import complete, find
from echelon.envs.contract import interface_of
from echelon.errors import UserError
from echelon.export.network import PolicyNetwork, weights_of
from echelon.models.actor_critic import ActorCritic
from echelon.runs import checkpoint as checkpoints
from echelon.runs.folder import RunFolder
from echelon.tasks import maker

Array = TypeVar("Array", np.ndarray, Tensor)


@dataclass(frozen=True)
class Extract:
    """A run's networks, and which of the policies is meant; no environment is built for it."""

    folder: RunFolder
    model: ActorCritic
    policy: int
    iteration: int
    bounds: dict[str, list[float]] | None
    """`low` and `high` of the environment's actions; None if they are from -1 to 1."""

    @staticmethod
    def load(
        run: RunFolder | str | Path, policy: str | int = "leader", checkpoint: checkpoints.Which = "newest"
    ) -> "Extract":
        """`policy` is `leader` or a number."""
        folder = run if isinstance(run, RunFolder) else RunFolder.open(run)
        found, config = checkpoints.load(folder, checkpoint), complete(folder.config)
        state = found.state["trainer"]
        interface = state.get("interface")
        if interface is None:  # of an older version
            interface = interface_of(maker(config)(1, torch.device("cpu"), 0))
        model = ActorCritic(
            interface["obs_spec"],
            interface["action_dim"],
            config.num_policies,
            config.model,
            networks=find(config.algo).networks(config.num_policies),
        )
        model.load_state_dict(state["model"])
        number = state["leader"] if policy == "leader" else policy
        if not str(number).isdecimal() or int(number) >= config.num_policies:
            raise UserError(f"the policy is leader or a number from 0 to {config.num_policies - 1}, not {policy}")
        return Extract(folder, model, int(number), found.iteration, interface["bounds"])

    def network(self) -> PolicyNetwork:
        """The policy alone."""
        return PolicyNetwork(weights_of(self.model, self.policy, self.bounds)).eval()


class Policy:
    """A policy as a function of observations, NumPy or torch, `[D]` or `[N, D]`; it acts at its mean.

    With an LSTM it remembers from call to call: `reset()` where an episode begins.
    """

    def __init__(self, network: PolicyNetwork) -> None:
        self.network, self._state = network, None

    def reset(self) -> None:
        """Forget what was seen."""
        self._state = None

    @torch.no_grad()
    def __call__(self, obs: Array) -> Array:
        """Actions in the units of the environment, of the same kind and on the same device as the observations."""
        x = torch.as_tensor(obs, dtype=torch.float32)
        width = self.network.get_buffer("obs_mean").shape[0]
        if x.ndim not in (1, 2) or x.shape[-1] != width:
            raise UserError(f"observations are [{width}] or [N, {width}], not {list(x.shape)}")
        action = self._act(x if x.ndim == 2 else x[None])
        action = action if x.ndim == 2 else action[0]
        return action if isinstance(obs, Tensor) else action.numpy()  # pyright: ignore[reportReturnType]  # as it came

    def _act(self, obs: Tensor) -> Tensor:
        self.network.to(obs.device)
        if not self.network.recurrent:
            return self.network(obs)
        if self._state is None or self._state.shape[0] != len(obs):
            self._state = torch.zeros(len(obs), self.network.state_dim, device=obs.device)
        action, self._state = self.network(obs, self._state)
        return action


def load_policy(run: Any, policy: str | int = "leader", checkpoint: checkpoints.Which = "newest") -> Policy:
    """The policy of a run, given by its folder: `leader`, or a number."""
    return Policy(Extract.load(run, policy, checkpoint).network())

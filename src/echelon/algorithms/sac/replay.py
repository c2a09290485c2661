"""The last steps of all environments, in a ring on the device, and rows drawn from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from echelon.envs.contract import Groups, Size, State, dtype_of, shape_of
from echelon.errors import UserError


@dataclass
class Rows:
    """B rows with the returns of up to n steps after them."""

    obs: Groups
    """`[B, D]` each, raw."""
    action: Tensor
    """`[B, A]`"""
    reward: Tensor
    """`[B]`: Σ γⁱ r_i until the n-th step or the end of the episode."""
    factor: Tensor
    """`[B]`: γ to the number of these steps, or 0 where the value after them is 0."""
    following: Groups
    """Observations after these steps, where they are bootstrapped; before the reset if the episode ended there."""


class Replay:
    """C steps of N environments, `[C, N, ...]`. The position of the next step is a tensor, so that storing and drawing
    can be recorded as CUDA graphs."""

    def __init__(
        self, capacity: int, num_envs: int, obs_spec: Mapping[str, Size], action_dim: int, device: torch.device
    ) -> None:
        self.capacity, self.num_envs, self.groups = capacity, num_envs, list(obs_spec)
        numbers = {f"{when}/{name}": size for name, size in obs_spec.items() for when in ("obs", "following")}

        def empty(*shape: int, dtype: torch.dtype | None = None) -> Tensor:
            return torch.zeros(capacity, num_envs, *shape, dtype=dtype, device=device)

        try:
            self.stored = {name: empty(*shape_of(size), dtype=dtype_of(size)) for name, size in numbers.items()}
            self.stored |= {"action": empty(action_dim), "reward": empty()}
            self.stored |= {name: empty(dtype=torch.bool) for name in ("ended", "final")}
        except RuntimeError as error:
            raise UserError(
                f"a replay of {capacity * num_envs:,} rows does not fit into the memory of the {device.type}; give "
                "--sac.replay a smaller number"
            ) from error
        self.head = torch.zeros(1, dtype=torch.long, device=device)
        self.filled = torch.zeros_like(self.head)
        """Steps that are stored, at most C."""

    def store(self, **step: Any) -> None:
        """Store a step: `obs`, `following`, `action`, `reward`, whether the value after it is 0 (`ended`), and whether
        the episode ends with it (`final`)."""
        step |= {f"{when}/{name}": x for when in ("obs", "following") for name, x in step[when].items()}
        for name, x in self.stored.items():
            x.index_copy_(0, self.head, step[name][None].to(x.dtype))
        self.head.copy_((self.head + 1) % self.capacity)
        self.filled.copy_((self.filled + 1).clamp(max=self.capacity))

    def cut(self) -> None:
        """Note that environments were reset from outside: no return runs on from the last step."""
        self.stored["final"].index_fill_(0, (self.head - 1) % self.capacity, True)

    def draw(self, drawn: Tensor, n_step: int, discount: float) -> Rows:
        """Rows for numbers `drawn` `[2, B]` in [0, 1): an environment, and a step that n-1 others follow."""
        stored, count = self.stored, self.filled - n_step + 1
        envs = (drawn[0] * self.num_envs).long().clamp(max=self.num_envs - 1)
        age = n_step - 1 + torch.minimum((drawn[1] * count).long(), count - 1)
        first = (self.head - 1 - age) % self.capacity
        reward, factor = torch.zeros_like(drawn[0]), torch.ones_like(drawn[0])
        going = torch.ones_like(envs, dtype=torch.bool)
        last, ended = first, ~going
        for number in range(n_step):
            here = (first + number) % self.capacity
            reward = reward + torch.where(going, factor * stored["reward"][here, envs], 0.0)
            factor = torch.where(going, factor * discount, factor)
            last, ended = torch.where(going, here, last), torch.where(going, stored["ended"][here, envs], ended)
            going = going & ~stored["final"][here, envs]
        obs, following = (
            {name: stored[f"{when}/{name}"][at, envs] for name in self.groups}
            for when, at in (("obs", first), ("following", last))
        )
        return Rows(obs, stored["action"][first, envs], reward, factor * ~ended, following)

    def state_dict(self) -> State:
        """What is stored, the oldest first."""
        filled = int(self.filled)
        order = (self.head - filled + torch.arange(filled, device=self.head.device)) % self.capacity
        return {name: x[order] for name, x in self.stored.items()}

    def load_state_dict(self, state: Any) -> None:
        """Take over the newest steps of what another replay stored, of any capacity."""
        filled = min(self.capacity, len(state["reward"]))
        for name, x in self.stored.items():
            x[:filled] = state[name][len(state[name]) - filled :]
        self.filled.fill_(filled)
        self.head.fill_(filled % self.capacity)

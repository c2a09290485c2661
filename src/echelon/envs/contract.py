"""What a trainer needs from an environment: batched torch tensors on one device.

An environment holds `num_envs` copies of a task. A copy whose episode ends is reset within the same `step`, so the
returned observation is always one to act on; the observation before the reset travels beside it as `final_obs`.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

Groups = dict[str, Tensor]
"""Observations by name, each `[N, D]`: `policy`, and `critic` where the value function sees more."""

State = Mapping[str, object]
"""Tensors, numbers, strings and nested mappings of them: what a checkpoint stores."""


@dataclass
class Step:
    """What one control step returns, for all environments at once.

    `terminated` and `truncated` stay apart up to the targets: only a terminated state is worth zero. On rows where
    either is set, `final_obs` is the observation before the reset; on the others it equals `obs`.

    `log` holds `[N]` tensors. A name that starts with `episode/` is a total of the episode so far, and counts when the
    episode ends (`episode/successes`); every other name is averaged over steps.
    """

    obs: Groups
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_obs: Groups
    log: dict[str, Tensor] = field(default_factory=dict)


@runtime_checkable
class Env(Protocol):
    """`num_envs` copies of one task. On CUDA, `step` never waits for the device."""

    num_envs: int
    action_dim: int
    obs_spec: dict[str, int]
    """Width of each observation group."""
    episode_length: int
    """Control steps after which an episode is truncated. Where a success turns the clock back, `longest_episode` says
    after how many control steps every episode has ended."""
    device: torch.device

    def reset(self) -> Groups:
        """Start every episode anew; observations by group."""
        ...

    def step(self, action: Tensor) -> Step:
        """Advance all environments by one control step. `action` is `[N, A]` within [-1, 1].

        Called under `torch.inference_mode`: tensors made here cannot be written in place outside of it.
        """
        ...

    def state_dict(self) -> State:
        """Everything needed to go on to the bit: simulator state, counters, curricula, random generators."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` returned."""
        ...


@runtime_checkable
class Capturable(Protocol):
    """What an environment has besides if its `step` can be captured as a CUDA graph.

    Such a step has fixed shapes and updates its state in place; see `echelon.device.capture`.
    """

    generator: torch.Generator
    """All that is random comes from it."""

    def capturing(self) -> AbstractContextManager[None]:
        """Entered while torch records its current stream."""
        ...


@runtime_checkable
class Evolvable(Protocol):
    """What an environment may have besides, for the members of a population to be compared and to differ by."""

    objective: str
    """The `episode/` figure that says how well a policy does, or `return`."""
    reward_scales: dict[str, Tensor]
    """Factors in the reward, `[N]` each, that may be written at any time between steps. Members with other factors have
    other returns, so only an environment whose objective is not the return should offer them."""


@runtime_checkable
class Adaptive(Protocol):
    """What an environment has besides if its difficulty follows how well it is done."""

    def adopt(self, state: State) -> None:
        """Take the difficulty of another copy of the environment, which returned `state`, and stay with it."""
        ...


MakeEnv = Callable[[int, torch.device, int], Env]
"""Builds an environment from `num_envs`, device and seed."""

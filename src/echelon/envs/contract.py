"""The interface between a trainer and an environment: batched torch tensors on one device.

An environment holds `num_envs` copies of a task. A copy whose episode ends is reset within the same `step`, so the
returned observation is always one to act on; `final_obs` holds the observation before the reset.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

Groups = dict[str, Tensor]
"""Observations by name, each `[N, D]`: `policy`, and `critic` where the value function sees more."""

State = Mapping[str, object]
"""What a checkpoint stores: tensors, numbers, strings and nested mappings of them."""


@dataclass
class Step:
    """The result of one control step of all environments.

    `terminated` marks episodes that ended in a state of value zero, `truncated` those stopped by the time limit, whose
    last state is bootstrapped. Where either is set, `final_obs` is the observation before the reset; elsewhere it
    equals `obs`.

    `log` holds `[N]` tensors. Those named `episode/...` are totals of the episode so far, and are logged when it ends
    (`episode/successes`); all others are averaged over steps.
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
    """Control steps after which an episode is truncated. If a success restarts the clock, `longest_episode` is the
    number of control steps after which every episode has ended."""
    device: torch.device

    def reset(self) -> Groups:
        """Start a new episode in every environment; returns observations by group."""
        ...

    def step(self, action: Tensor) -> Step:
        """Advance all environments by one control step. `action` is `[N, A]` within [-1, 1].

        Called under `torch.inference_mode`: tensors made here cannot be written in place outside of it.
        """
        ...

    def state_dict(self) -> State:
        """Everything needed for a bit-identical continuation: simulator, counters, curricula, random generators."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        ...


@runtime_checkable
class Extendable(Protocol):
    """What an environment has besides if an episode can last longer than `episode_length`."""

    longest_episode: int
    """Control steps after which every episode has ended, also where a success turns the clock back."""


@runtime_checkable
class Configured(Protocol):
    """What an environment has besides if it settles settings that were left open, such as the room for contacts."""

    config: object
    """All of its settings, which are stored with the run."""


@runtime_checkable
class Simulated(Protocol):
    """What an environment on a physics engine has besides: such a one can be looked at, and its physics timed."""

    engine: Any
    """As in `echelon.sim.contract`."""
    substeps: int
    """Physics steps of a control step."""


@runtime_checkable
class Capturable(Protocol):
    """Also implemented by an environment whose `step` can be captured as a CUDA graph.

    Such a step has fixed shapes and updates its state in place, as `echelon.device.capture` requires.
    """

    generator: torch.Generator
    """The source of all random numbers."""

    def capturing(self) -> AbstractContextManager[None]:
        """Context entered while torch records its current stream."""
        ...


@runtime_checkable
class Evolvable(Protocol):
    """Also implemented by an environment that tells a population what to compare members by, and what may differ."""

    objective: str
    """The `episode/` metric by which policies are compared, or `return`."""
    reward_scales: dict[str, Tensor]
    """Factors of reward terms, `[N]` each, that may be changed between steps. They change the return, so only an
    environment with another objective should offer them."""


@runtime_checkable
class Adaptive(Protocol):
    """Also implemented by an environment with a curriculum: its difficulty follows the success of the policy."""

    def adopt(self, state: State) -> None:
        """Take the difficulty stored in the `state` of another instance, and keep it fixed."""
        ...


MakeEnv = Callable[[int, torch.device, int], Env]
"""Builds an environment from `num_envs`, device and seed."""

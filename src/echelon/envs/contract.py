"""The interface between a trainer and an environment: batched torch tensors on one device.

An environment holds `num_envs` copies of a task. A copy whose episode ends is reset within the same `step`, so the
returned observation is always one to act on; `final_obs` holds the observation before the reset.

`Env` is what every environment has. The other protocols are parts it may have besides; what it lacks, training does
without, and says so where that costs something.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

Groups = dict[str, Tensor]
"""Observations by name, `[N, D]` each: `policy`, and `critic` where the value function sees something else; `image` is
`[N, C, H, W]`."""


class Image(NamedTuple):
    """The size of an image: uint8 from 0 to 255, which is scaled, or floats, which are taken as they are."""

    channels: int
    height: int
    width: int
    floats: bool = False


Size = int | tuple[int, ...]
"""Of a group: how many numbers, or an `Image`, for which `(C, H, W)` will do."""


def is_image(size: Size) -> bool:
    return not isinstance(size, int)


def shape_of(size: Size) -> tuple[int, ...]:
    """Of a group in one environment."""
    return (size,) if isinstance(size, int) else tuple(size[:3])


def dtype_of(size: Size) -> torch.dtype:
    """What a group is stored as."""
    return torch.get_default_dtype() if isinstance(size, int) or any(size[3:]) else torch.uint8


State = Mapping[str, object]
"""What a checkpoint stores: tensors, numbers, strings and nested mappings of them."""


@dataclass
class Step:
    """The result of one control step of all environments.

    `terminated` marks episodes that ended in a state of value zero, `truncated` those stopped by the time limit, whose
    last state is bootstrapped. Where either is set, `final_obs` is the observation before the reset; elsewhere it
    equals `obs`. An environment that does not know it leaves it out: then V(s_t), the value before the last step, is
    the bootstrap. Never the observation after the reset, which silently misleads the critic.

    `log` holds `[N]` tensors, or numbers and 0-d tensors that hold for all environments; the same names in every step.
    Those named `episode/...` are totals of the episode so far, and are logged when it ends (`episode/successes`); all
    others are averaged over steps.
    """

    obs: Groups
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_obs: Groups | None = None
    log: Mapping[str, Tensor | float] = field(default_factory=dict)


@runtime_checkable
class Env(Protocol):
    """`num_envs` copies of one task. On CUDA, `step` never waits for the device."""

    num_envs: int
    action_dim: int
    episode_length: int
    """Control steps after which an episode is truncated. If a success restarts the clock, `longest_episode` is the
    number of control steps after which every episode has ended."""
    device: torch.device

    @property
    def obs_spec(self) -> Mapping[str, Size]:
        """Size of each observation group: `policy` or `image` or both, which the policy sees; `critic`, which the value
        function sees instead, if there is one."""
        ...

    def reset(self) -> Groups:
        """Start a new episode in every environment; returns observations by group."""
        ...

    def step(self, action: Tensor) -> Step:
        """Advance all environments by one control step. `action` is `[N, A]` within [-1, 1], unless it is `Bounded`.

        Called under `torch.inference_mode`: tensors made here cannot be written in place outside of it.
        """
        ...


@runtime_checkable
class Stateful(Protocol):
    """Optional. With it, a resumed run continues to the bit; without it, new episodes start."""

    def state_dict(self) -> State:
        """Everything needed for a bit-identical continuation: simulator, counters, curricula, random generators.

        Empty where it is unknown: new episodes start then, as without it.
        """
        ...

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned. Tensors come from a file, so they are on the CPU."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """What an environment has besides if its actions are not from -1 to 1."""

    action_low: Tensor
    """`[A]`: what an action of -1 stands for. Infinite: `step` gets that action as it was sampled, without a limit."""
    action_high: Tensor
    """`[A]`: what an action of 1 stands for."""


def bounded(env: Env) -> Callable[[Tensor], Tensor]:
    """What turns sampled actions `[N, A]` into those that `step` takes."""
    if not isinstance(env, Bounded):
        return lambda action: action.clamp(-1.0, 1.0)
    low, high = env.action_low.to(env.device), env.action_high.to(env.device)
    free = torch.isinf(low) | torch.isinf(high)
    if bool(free.all()):
        return lambda action: action
    centre, half = ((high + low) / 2).masked_fill(free, 0.0), ((high - low) / 2).masked_fill(free, 1.0)
    return lambda action: torch.where(free, action, centre + half * action.clamp(-1.0, 1.0))


def interface_of(env: Env) -> dict[str, Any]:
    """Sizes and bounds, as a checkpoint stores them: all that acting needs to know of an environment."""
    bounds = None
    if isinstance(env, Bounded):
        bounds = {"low": env.action_low.tolist(), "high": env.action_high.tolist()}
    return {"obs_spec": dict(env.obs_spec), "action_dim": env.action_dim, "bounds": bounds}


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
class Drawable(Protocol):
    """What an environment that is not simulated by an engine has besides if it can be looked at all the same."""

    def drawing(self) -> Simulated:
        """An engine whose simulations are put into the environment's states by every reset and step, from now on."""
        ...


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
class Guarding(Protocol):
    """Also implemented by an environment that keeps its first simulations that went wrong, to be looked at later."""

    def take_faults(self) -> list[dict[str, Any]]:
        """Return those since the last call: NumPy arrays by name, and the number of the `environment`. Waits for the
        device; called after a rollout that logged `quarantined`."""
        ...


@runtime_checkable
class Adaptive(Protocol):
    """Also implemented by an environment with a curriculum: its difficulty follows the success of the policy."""

    def adopt(self, state: State) -> None:
        """Take the difficulty stored in the `state` of another instance, and keep it fixed."""
        ...


@runtime_checkable
class Shared(Protocol):
    """Also implemented by an environment whose copies have something in common that changes, such as a curriculum: in a
    run on several ranks it must be the same on all of them."""

    def join(self, mean: Callable[[Tensor], Tensor]) -> None:
        """From now on, average what decides over all ranks too: `mean` gives the mean of their tensors, and the host
        does not wait. All ranks step together, so all call it equally often."""
        ...

    def go_on_from(self, state: State) -> None:
        """Take what the copies have in common from the `state` of an instance with another number of them."""
        ...


MakeEnv = Callable[[int, torch.device, int], Env]
"""Builds an environment from `num_envs`, device and seed."""

"""The interface between a trainer and an environment: batched torch tensors on one device.

An environment holds `num_envs` copies of a task. A copy whose episode ends is reset within the same `step`, so the
returned observation is always one to act on; `final_obs` holds the observation before the reset.

`Env` is required, the other protocols are optional, and so are these attributes:

* `longest_episode`: control steps after which every episode has ended, if a success restarts the clock.
* `config`: its settings, with those filled in that were left unset, such as buffer sizes. They are stored with the run.
* `objective`: the `episode/` metric by which a population compares its members, instead of the return.
* `reward_scales`: factors of reward terms by name, `[N]` each, which a population may change between steps. They change
  the return, so only an environment with another objective should have them.
* `drawing()`: a `Simulated` whose simulations follow its states, for one that has no engine itself. Unset or None: it
  cannot be shown.
* `controls()`: what actions stand for, in a sentence for `echelon env check`.
* `privileged`: numbers of the group `policy` that the robot itself would not measure, by their places: `("0:3",)`. A
  policy that is trained with `--obs policy` does not see them.
* `take_faults()`: the first simulations that diverged since the last call: NumPy arrays by name, and the number of the
  `environment`. Waits for the device; called after a rollout that logged `quarantined`.

The `require_` functions check what an environment returns. A tensor of a wrong shape that broadcasts would be accepted
silently: one reward for all environments, or one environment's observation for all.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from echelon.errors import UserError

MAX_MAGNITUDE = 1e10
"""Largest magnitude of a valid observation or reward. MuJoCo rejects states beyond it, too."""
MAX_STATISTIC = MAX_MAGNITUDE**2
"""Largest valid statistic: the variance of valid observations is below it, and any weight or moment far below."""
KINDS: dict[str, Callable[[Tensor], bool]] = {
    "floating point": Tensor.is_floating_point,
    "uint8": lambda x: x.dtype is torch.uint8,
    "bool": lambda x: x.dtype is torch.bool,
    "number": lambda x: not x.is_complex(),
}
Groups = dict[str, Tensor]
"""Observations by name, `[N, D]` each: `policy`, and `critic` where the value function sees something else; `image` is
`[N, C, H, W]`."""
TARGET = "target"
"""A group that no network sees: what a teacher would do, `[N, A]`."""


class Image(NamedTuple):
    """The size of an image: uint8 from 0 to 255, which is scaled, or floats, which are taken as they are."""

    channels: int
    height: int
    width: int
    floats: bool = False


Size = int | tuple[int, ...]
"""Size of a group: how many numbers, or an `Image`, or `(C, H, W)`."""


def shape_of(size: Size) -> tuple[int, ...]:
    """Shape of a group in one environment."""
    return (size,) if isinstance(size, int) else tuple(size[:3])


def dtype_of(size: Size) -> torch.dtype:
    """Type in which a group is stored."""
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
    """Control steps after which an episode is truncated."""
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
        Called under `torch.inference_mode`: tensors made here cannot be written in place outside of it."""
        ...


MakeEnv = Callable[[int, torch.device, int], Env]
"""Builds an environment from `num_envs`, device and seed."""


@runtime_checkable
class Stateful(Protocol):
    """Optional. With it, a resumed run continues bit for bit; without it, new episodes start."""

    def state_dict(self) -> State:
        """Everything that changes: simulator, counters, curricula, random generators. Empty if unknown: then new
        episodes start, as without it."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned. Tensors come from a file, so they are on the CPU."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """Optional. Limits of actions, if they are not -1 and 1."""

    action_low: Tensor
    """`[A]`: what an action of -1 stands for. Infinite: `step` gets that action as it was sampled, without a limit."""
    action_high: Tensor
    """`[A]`: what an action of 1 stands for."""


@runtime_checkable
class Simulated(Protocol):
    """Optional. An environment on a physics engine, which can be shown and whose physics can be timed."""

    engine: Any
    """As in `echelon.sim.contract`."""
    substeps: int
    """Physics steps per control step."""


@runtime_checkable
class Capturable(Protocol):
    """Optional. A `step` that can be captured as a CUDA graph: it has fixed shapes and updates its state in place, as
    `echelon.device.capture` requires."""

    generator: torch.Generator
    """The source of all random numbers."""

    def capturing(self) -> AbstractContextManager[None]:
        """Context entered while torch records its current stream."""
        ...


@runtime_checkable
class Fusable(Protocol):
    """Optional. A `step` whose own work can be compiled into fewer kernels."""

    def fuse(self) -> None:
        """Compile it. Called before the first `reset`, whose episodes begin as they would without."""
        ...


@runtime_checkable
class Adaptive(Protocol):
    """Optional. A curriculum: all copies share a difficulty that follows the success of the policy.

    If rewards depend on it, give it as `difficulty` too, a tensor of one number that is changed in place: a replay then
    forgets the rewards of another level.
    """

    def adopt(self, state: State, *, fixed: bool) -> None:
        """Take the difficulty stored in the `state` of another instance of any size; if `fixed`, keep it."""
        ...

    def join_ranks(self, mean: Callable[[Tensor], Tensor]) -> None:
        """Let the success of all ranks decide: `mean` averages a tensor over ranks without synchronising with the host.
        Ranks step together, so all make the same calls."""
        ...


def bounded(env: Env) -> Callable[[Tensor], Tensor]:
    """The map from sampled actions `[N, A]` to those that `step` takes."""
    if not isinstance(env, Bounded):
        return lambda action: action.clamp(-1.0, 1.0)
    return onto(env.action_low.to(env.device), env.action_high.to(env.device))


def onto(low: Tensor, high: Tensor) -> Callable[[Tensor], Tensor]:
    """The map of actions from [-1, 1] onto [`low`, `high`], `[A]` each; those without a limit stay as they are."""
    free = torch.isinf(low) | torch.isinf(high)
    if bool(free.all()):
        return lambda action: action
    centre, half = ((high + low) / 2).masked_fill(free, 0.0), ((high - low) / 2).masked_fill(free, 1.0)
    return lambda action: torch.where(free, action, centre + half * action.clamp(-1.0, 1.0))


def is_shown(env: Env) -> bool:
    """Whether policies can be watched in it."""
    return isinstance(env, Simulated) or getattr(env, "drawing", None) is not None


def interface_of(env: Env) -> dict[str, Any]:
    """Sizes and bounds, as a checkpoint stores them: all that acting needs to know of an environment."""
    bounds = None
    if isinstance(env, Bounded):
        bounds = {"low": env.action_low.tolist(), "high": env.action_high.tolist()}
    seen = {name: size for name, size in env.obs_spec.items() if name != TARGET}
    return {"obs_spec": seen, "action_dim": env.action_dim, "bounds": bounds}


def _is_size(size: Any) -> bool:
    """Whether this can be the size of a group. Checkpoints hold no integers of NumPy."""
    image = isinstance(size, tuple) and len(size) in (3, 4)
    return type(size) is int or (image and all(type(x) is int for x in size[:3]))


def misfits(env: Env, num_envs: int, device: torch.device) -> Iterator[str]:
    """What is wrong with an environment before its first step, a sentence each."""
    if env.num_envs != num_envs:
        yield f"num_envs is {env.num_envs}, though {num_envs} environments were asked for"
    if not isinstance(env.device, torch.device):
        yield f"device is a {type(env.device).__name__}, not a torch.device"
    elif env.device.type != device.type:
        yield f"device is {env.device}, though it was asked to be on {device}"
    if not isinstance(env.obs_spec, Mapping) or not {"policy", "image"} & set(env.obs_spec):
        yield "obs_spec has no group called policy, which is what the policy sees"
    elif odd := [name for name, size in env.obs_spec.items() if not _is_size(size)]:
        yield f"obs_spec has {env.obs_spec[odd[0]]!r} for {odd[0]}, not an int or (C, H, W)"
    elif empty := [name for name, size in env.obs_spec.items() if math.prod(shape_of(size)) < 1]:
        yield f"obs_spec has nothing to see in {empty[0]}"
    for name in ("action_dim", "episode_length"):
        if type(number := getattr(env, name)) is not int or number < 1:
            yield f"{name} is {number!r}, not an int of at least 1"
    level = getattr(env, "difficulty", None) if isinstance(env, Adaptive) else None
    fits = isinstance(level, Tensor) and level.numel() == 1 and level.device.type == device.type
    if level is not None and not fits:
        yield f"difficulty is {level!r}, not a tensor of one number on {device}"
    if isinstance(env, Bounded):
        limits = env.action_low, env.action_high
        if not all(isinstance(x, Tensor) for x in limits):
            yield "action_low and action_high are not both tensors"
        elif (lengths := [tuple(x.shape) for x in limits]) != [(env.action_dim,)] * 2:
            yield f"action_low and action_high have shapes {lengths[0]} and {lengths[1]}, not ({env.action_dim},)"
        elif not bool((env.action_low < env.action_high).all()):
            yield "action_low is not below action_high everywhere"


def require_observations(env: Env, obs: Mapping[str, Any], name: str = "observation") -> None:
    """Raise a `UserError` unless `obs` has each group of `obs_spec`, `[N, D]` floats or images, on its device."""
    if not isinstance(obs, Mapping):
        raise UserError(f"the environment's {name} must be a dict of groups such as policy, not {type(obs).__name__}")
    for group, size in env.obs_spec.items():
        if group not in obs:
            raise UserError(f"the environment's {name} lacks the group {group}, which its obs_spec names")
        kind = "uint8" if dtype_of(size) is torch.uint8 else "floating point"
        _require(env, f"{name} {group}", obs[group], (env.num_envs, *shape_of(size)), kind)


def require_step(env: Env, step: Step) -> None:
    """Raise a `UserError` for the first part of a step that is not what the contract says."""
    if not isinstance(step, Step):
        raise UserError(f"the environment's step must return an echelon.Step, not a {type(step).__name__}")
    require_observations(env, step.obs)
    if step.final_obs is not None:
        require_observations(env, step.final_obs, "final_obs")
    for name, kind in (("reward", "floating point"), ("terminated", "bool"), ("truncated", "bool")):
        _require(env, name, getattr(step, name), (env.num_envs,), kind)
    for name, x in step.log.items():
        if not isinstance(x, int | float):
            _require(env, f"log {name}", x, (env.num_envs,) if isinstance(x, Tensor) and x.ndim else (), "number")


def _require(env: Env, name: str, x: Any, shape: tuple[int, ...], kind: str) -> None:
    wrong = ""
    if not isinstance(x, Tensor):
        wrong = f"be a torch tensor, not {type(x).__name__}"
    elif tuple(x.shape) != shape:
        wrong = f"have the shape {list(shape)}, not {list(x.shape)}"
    elif not KINDS[kind](x):
        wrong = f"be {kind}, not {str(x.dtype).removeprefix('torch.')}"
    elif x.device.type != env.device.type or (env.device.index not in (None, x.device.index)):
        wrong = f"be on {env.device}, where it says it is, not on {x.device}"
    if wrong:
        raise UserError(f"the environment's {name} must {wrong}")


def find_fault(name: str, x: Tensor, scale: float = 1.0) -> str | None:
    """The first number of `x` `[T, N, ...]` that is not finite or beyond `MAX_MAGNITUDE`, in words; None if all are
    sane. Waits for the device."""
    wrong = ~(x.abs() <= MAX_MAGNITUDE * scale)
    if not wrong.any():
        return None
    t, environment, *place = wrong.nonzero()[0].tolist()
    value = x[(t, environment, *place)].item() / scale
    where = f" (number {place[0]})" if place else ""
    return f"the environment's {name}{where} is {value:g} in environment {environment}"

"""Gymnasium's vector environments, stepped on the CPU: `--env gymnasium:Walker2d-v5`."""

# The package is optional.
# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor

from echelon.envs.contract import Env, Groups, Image, Size, Step
from echelon.errors import UserError, first_line, nearest

Read = Callable[[Any], np.ndarray]
"""From a batch of observations of some space to a group's array, always a new one."""
MOST_CHANNELS = 4
"""Channels come last if the last of three dimensions is at most this and the first is larger."""
NO_LIMIT = 1000
"""Control steps that evaluation waits for an episode where the environment has no time limit."""


def make(name: str, num_envs: int, device: torch.device, seed: int, /, *, processes: bool = False, **args: Any) -> Env:
    """`num_envs` copies of a registered environment; with `processes`, each in a process of its own."""
    kind = "async" if processes else "sync"
    if args.get("render_mode") == "human":  # the whole process ends where there is no display
        raise UserError("render_mode human draws a window in every step; leave it out, and look with `echelon play`")
    try:
        spec = gymnasium.spec(name)
        if spec.entry_point is None and spec.vector_entry_point is not None:
            env = gymnasium.make_vec(name, num_envs, "vector_entry_point", **args)
        else:
            # Observations are copied when they are read, so the vector environment need not do it as well.
            same_step = {"autoreset_mode": AutoresetMode.SAME_STEP, "copy": False}
            env = gymnasium.make_vec(name, num_envs, kind, vector_kwargs=same_step, **args)
    except (gymnasium.error.Error, ImportError, OSError, TypeError, ValueError) as error:
        known = name in gymnasium.registry or "/" in name or "Did you mean" in str(error)
        hint = "" if known else nearest(name, gymnasium.registry)
        raise UserError(f"gymnasium cannot make {name}: {reason(error)}{hint}") from None
    return GymnasiumEnv(env, device, seed)


def reason(error: Exception) -> str:
    """Why it could not be made, without the arguments that Gymnasium repeats after it."""
    if isinstance(error, KeyError):
        return f"it does not know {error}"
    return first_line(error).partition(" was raised from the environment creator")[0]


class MujocoView:
    """The part of the engine contract that shows one environment: live tensors `[1, ...]` of its `MjModel` and
    `MjData`."""

    def __init__(self, model: Any, data: Any) -> None:
        self.model, self._data = model, data

    def __getattr__(self, name: str) -> Tensor:
        return self.read(name)

    def read(self, name: str) -> Tensor:
        """A field of `MjData`."""
        return torch.from_numpy(getattr(self._data, name))[None]

    def expand(self, field: str) -> Tensor:
        """A field of `MjModel`."""
        return torch.from_numpy(getattr(self.model, field))[None]


class GymnasiumEnv:
    """A vector environment of any autoreset mode.

    Parts of an observation are flattened and put side by side, `Discrete` ones as one-hot vectors, unless the space is
    a `Dict` with a part called `policy`, whose parts then are the groups. A uint8 `Box` of three dimensions is an
    image. `Discrete` actions have an output each, of which the largest is chosen.
    """

    def __init__(self, env: VectorEnv, device: torch.device, seed: int = 0) -> None:
        self.env, self.num_envs, self.device = env, env.num_envs, device
        self._seed: int | None = seed
        self._on_cpu = device.type == "cpu"
        self._same_step = env.metadata.get("autoreset_mode") == AutoresetMode.SAME_STEP
        self.episode_length: int = getattr(env.spec, "max_episode_steps", None) or NO_LIMIT
        space = env.single_action_space
        if isinstance(space, spaces.Box):
            self.action_low, self.action_high = (torch.from_numpy(x.ravel()).float() for x in (space.low, space.high))
            self.action_dim = len(self.action_low)
        elif isinstance(space, spaces.Discrete):
            self.action_dim = int(space.n)
        else:
            raise UserError(f"actions are a Box or Discrete, not {type(space).__name__}")
        self._space = space
        envs = getattr(env, "envs", [])
        inside = envs[0].unwrapped if len(envs) == 1 else None
        if inside is not None and all(hasattr(inside, name) for name in ("model", "data", "frame_skip")):
            self.engine, self.substeps = MujocoView(inside.model, inside.data), int(inside.frame_skip)
        self._readers = _readers(env.single_observation_space)
        blank = create_empty_array(env.single_observation_space, env.num_envs, fn=np.zeros)
        self.obs_spec: dict[str, Size] = {
            name: Image(*x.shape[1:]) if name == "image" else x.shape[1] for name, x in self._read(blank).items()
        }

    def reset(self) -> Groups:
        """Start a new episode in every environment; the first time from the seed."""
        obs, _ = self.env.reset(seed=self._seed)
        self._seed = None
        return self._groups(self._read(obs))

    def step(self, action: Tensor) -> Step:
        """Advance all environments by one control step."""
        obs, reward, terminated, truncated, info = self.env.step(self._action(action))
        now = self._read(obs)
        last = now
        if self._same_step:
            if "final_obs" in info:
                last = self._before_reset(now, info["final_obs"], terminated | truncated)
        elif (done := terminated | truncated).any():  # the next step would reset them and ignore its action
            now = self._read(self.env.reset(options={"reset_mask": done})[0])
        groups = self._groups(now)
        return Step(
            groups,
            self._tensor(np.asarray(reward, np.float32)),
            self._tensor(terminated),
            self._tensor(truncated),
            groups if last is now else self._groups(last),
        )

    def _tensor(self, x: np.ndarray) -> Tensor:
        """On the device. Calls that do nothing are left out: between steps of a simulator each is slow."""
        return torch.from_numpy(x) if self._on_cpu else torch.from_numpy(x).to(self.device)

    def _action(self, action: Tensor) -> np.ndarray:
        x = (action if self._on_cpu else action.cpu()).numpy()
        if isinstance(self._space, spaces.Discrete):
            return x.argmax(1) + self._space.start
        return x.reshape(self.num_envs, *self._space.shape).astype(self._space.dtype, copy=False)

    def _read(self, obs: Any) -> dict[str, np.ndarray]:
        return {name: read(obs) for name, read in self._readers.items()}

    def _groups(self, arrays: dict[str, np.ndarray]) -> Groups:
        return {name: self._tensor(x) for name, x in arrays.items()}

    def _before_reset(self, now: dict[str, np.ndarray], final: Any, done: np.ndarray) -> dict[str, np.ndarray]:
        """Observations before a reset within the same step, of those whose episode ended."""
        rows = done.nonzero()[0]
        ended = [final[row] for row in rows]
        space = self.env.single_observation_space
        if isinstance(space, spaces.Box):
            batch: Any = np.stack(ended)
        else:
            batch = concatenate(space, ended, create_empty_array(space, len(rows)))
        last = {}
        for name, read in self._readers.items():
            last[name] = now[name].copy()
            last[name][rows] = read(batch)
        return last


def _readers(space: spaces.Space) -> dict[str, Read]:
    """What makes each group of an observation."""
    if _is_image(space):
        return {"image": _image(space)}
    if not isinstance(space, spaces.Dict):
        return {"policy": _flat(space)}
    images = [name for name, part in space.spaces.items() if _is_image(part)]
    if len(images) > 1:
        raise UserError(f"observations have one image, not {', '.join(images)}; put them into one, as channels")
    found = {"image": _part(images[0], _image(space[images[0]]))} if images else {}
    if "policy" in space.spaces:
        groups = [name for name in ("policy", "critic") if name in space.spaces and name not in images]
        return {name: _part(name, _flat(space[name])) for name in groups} | found
    rest = {name: part for name, part in space.spaces.items() if name not in images}
    return ({"policy": _flat(spaces.Dict(rest))} if rest else {}) | found


def _is_image(space: spaces.Space) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8


def _image(space: spaces.Space) -> Read:
    """Images as `[N, C, H, W]`, also of spaces that have channels last."""
    assert space.shape is not None
    if space.shape[2] <= MOST_CHANNELS < space.shape[0]:
        return lambda x: np.ascontiguousarray(np.moveaxis(np.array(x), 3, 1))
    return lambda x: np.array(x)


def _part(name: Any, read: Read) -> Read:
    return lambda x: read(x[name])


def _flat(space: spaces.Space) -> Read:
    """Observations as float32 `[N, D]`. Made once per space, so that a step only copies."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        parts = [_part(name, _flat(part)) for name, part in named]
        return lambda x: np.concatenate([read(x) for read in parts], axis=1)
    if isinstance(space, spaces.Discrete):
        one_hot, start = np.eye(int(space.n), dtype=np.float32), space.start
        return lambda x: one_hot[np.asarray(x) - start]
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        if len(space.shape or ()) == 1:
            return lambda x: np.array(x, dtype=np.float32)
        return lambda x: np.array(x, dtype=np.float32).reshape(len(x), -1)
    raise UserError(f"observations are Box, Discrete, MultiBinary, Dict or Tuple spaces, not {type(space).__name__}")

"""Gymnasium's vector environments, stepped on the CPU: `--env gymnasium:Walker2d-v5`."""

# The package is optional.
# pyright: reportMissingImports=false

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor

from echelon.envs.contract import Env, Groups, Image, Size, Step
from echelon.errors import UserError, first_line, nearest

Arrays = dict[str, np.ndarray]
"""Observations by group."""
MOST_CHANNELS = 4
"""Channels come last if the last of three dimensions is at most this and the first is larger."""
NO_LIMIT = 1000
"""Control steps that evaluation waits for an episode where the environment has no time limit."""


def make_gymnasium(
    name: str, num_envs: int, device: torch.device, seed: int, /, *, processes: bool = False, **args: Any
) -> Env:
    """`num_envs` copies of a registered environment; with `processes`, each in a process of its own."""
    if args.get("render_mode") == "human":  # the whole process ends where there is no display
        raise UserError("render_mode human draws a window in every step; leave it out, and look with `echelon play`")
    try:
        spec = gymnasium.spec(name)
        if spec.entry_point is None and spec.vector_entry_point is not None:
            env = gymnasium.make_vec(name, num_envs, "vector_entry_point", **args)
        else:
            # Observations are copied when they are read, so the vector environment need not do it as well.
            same_step = {"autoreset_mode": AutoresetMode.SAME_STEP, "copy": False}
            env = gymnasium.make_vec(name, num_envs, "async" if processes else "sync", vector_kwargs=same_step, **args)
    except (gymnasium.error.Error, ImportError, OSError, TypeError, ValueError) as error:
        known = name in gymnasium.registry or "/" in name or "Did you mean" in str(error)
        hint = "" if known else nearest(name, gymnasium.registry)
        raise UserError(f"gymnasium cannot make {name}: {reason(error)}{hint}") from None
    return GymnasiumEnv(env, device, seed)


def reason(error: Exception) -> str:
    """Why it could not be made, without the arguments that Gymnasium repeats after it."""
    if isinstance(error, KeyError):
        return f"it does not know {error}"
    return first_line(error).partition(" was raised from the environment creator")[0].rstrip(".")


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
        envs = getattr(env, "envs", [])
        spec = getattr(envs[0] if envs else env, "spec", None)
        if spec is None and isinstance(env.unwrapped, AsyncVectorEnv):  # made of factories: only its processes know
            spec = env.unwrapped.get_attr("spec")[0]
        # A vector's spec keeps the limit that was registered beside the one that was asked for.
        limit = spec and spec.kwargs.get("max_episode_steps", spec.max_episode_steps)
        self.episode_length: int = limit if limit and limit > 0 else NO_LIMIT
        space = env.single_action_space
        if isinstance(space, spaces.Box):
            self.action_low, self.action_high = (torch.from_numpy(x.ravel()).float() for x in (space.low, space.high))
            self.action_dim = len(self.action_low)
        elif isinstance(space, spaces.Discrete):
            self.action_dim = int(space.n)
        else:
            raise UserError(f"actions are a Box or Discrete, not {type(space).__name__}")
        self._space = space
        inside = envs[0].unwrapped if envs else None
        on_mujoco = all(hasattr(inside, name) for name in ("model", "data", "frame_skip"))
        self.drawing = partial(_view, inside) if on_mujoco else None
        self._parts = _parts(env.single_observation_space)
        blank = self._read(create_empty_array(env.single_observation_space, env.num_envs, fn=np.zeros))
        self.obs_spec: dict[str, Size] = {
            group: Image(*x.shape[1:]) if group == "image" else x.shape[1] for group, x in blank.items()
        }

    def reset(self) -> Groups:
        """The first time from the seed."""
        obs, _ = self.env.reset(seed=self._seed)
        self._seed = None
        return self._groups(self._read(obs))

    def step(self, action: Tensor) -> Step:
        x = (action if self._on_cpu else action.cpu()).numpy()
        if isinstance(self._space, spaces.Discrete):
            x = x.argmax(1) + self._space.start
        else:
            x = x.reshape(self.num_envs, *self._space.shape).astype(self._space.dtype, copy=False)
        obs, reward, terminated, truncated, info = self.env.step(x)
        now = last = self._read(obs)
        if self._same_step:
            if "final_obs" in info:
                last = self._before_reset(now, info["final_obs"], terminated | truncated)
        elif (done := terminated | truncated).any():  # the next step would reset them and ignore its action
            try:
                now = self._read(self.env.reset(options={"reset_mask": done})[0])
            except ValueError as error:  # as of gymnasium's NormalizeObservation
                told = f"{type(self.env).__name__} cannot reset only the copies whose episodes ended"
                raise UserError(f"{told} ({first_line(error)}); leave it out: training normalises by itself") from None
            stay = (np.array_equal(x[~done], last[group][~done], equal_nan=True) for group, x in now.items())
            if getattr(self.env, "unwrapped", None) is self.env and not all(stay):  # a wrapper may normalise all anew
                odd = f"{type(self.env).__name__} resets all copies when one has ended: it ignores reset_mask"
                raise UserError(f"{odd}; make it as gymnasium.make_vec(NAME, num_envs, 'sync') does")
        groups, reward = self._groups(now), self._tensor(np.asarray(reward, np.float32))
        final = groups if last is now else self._groups(last)
        return Step(groups, reward, self._tensor(terminated), self._tensor(truncated), final)

    def _tensor(self, x: np.ndarray) -> Tensor:
        """On the device. Calls that do nothing are left out: between steps of a simulator each is slow."""
        return torch.from_numpy(x) if self._on_cpu else torch.from_numpy(x).to(self.device)

    def _groups(self, arrays: Arrays) -> Groups:
        return {group: self._tensor(x) for group, x in arrays.items()}

    def _read(self, obs: Any) -> Arrays:
        """Groups of an observation of any number of environments, always new arrays."""
        parts = ((group, obs if name is None else obs[name], space) for group, (name, space) in self._parts.items())
        return {group: _image(space, x) if group == "image" else _flat(space, x) for group, x, space in parts}

    def _before_reset(self, now: Arrays, final: Any, done: np.ndarray) -> Arrays:
        """Observations before a reset within the same step, of those whose episode ended."""
        rows, space = done.nonzero()[0], self.env.single_observation_space
        ended = self._read(concatenate(space, [final[row] for row in rows], create_empty_array(space, len(rows))))
        last = {group: x.copy() for group, x in now.items()}
        for group, x in ended.items():
            last[group][rows] = x
        return last


def _view(inside: Any) -> Any:
    """What shows one of Gymnasium's environments on MuJoCo."""
    from echelon.envs.view import MujocoView

    return MujocoView(inside.model, int(inside.frame_skip), inside.data)


def _parts(space: spaces.Space) -> dict[str, tuple[Any, spaces.Space]]:
    """What each group is made of: a part of the observation by its name, or all of it (None)."""
    if _is_image(space):
        return {"image": (None, space)}
    if not isinstance(space, spaces.Dict):
        return {"policy": (None, space)}
    images = [name for name, part in space.spaces.items() if _is_image(part)]
    if len(images) > 1:
        raise UserError(f"observations have one image, not {', '.join(images)}; put them into one, as channels")
    rest = {name: part for name, part in space.spaces.items() if name not in images}
    if "policy" in space.spaces:
        found = {name: (name, rest[name]) for name in ("policy", "critic") if name in rest}
    else:
        found = {"policy": (None, spaces.Dict(rest))} if rest else {}
    return found | ({"image": (images[0], space[images[0]])} if images else {})


def _is_image(space: spaces.Space) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8


def _image(space: spaces.Space, x: Any) -> np.ndarray:
    """Images as `[N, C, H, W]`, also of spaces that have channels last."""
    assert space.shape is not None
    last = space.shape[2] <= MOST_CHANNELS < space.shape[0]
    return np.array(np.moveaxis(x, 3, 1) if last else x, order="C")


def _flat(space: spaces.Space, x: Any) -> np.ndarray:
    """Observations as float32 `[N, D]`."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return np.concatenate([_flat(part, x[name]) for name, part in named], axis=1)
    if isinstance(space, spaces.Discrete):
        return (np.asarray(x)[:, None] == np.arange(space.n) + space.start).astype(np.float32)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return np.array(x, dtype=np.float32).reshape(len(x), -1)
    raise UserError(f"observations are Box, Discrete, MultiBinary, Dict or Tuple spaces, not {type(space).__name__}")

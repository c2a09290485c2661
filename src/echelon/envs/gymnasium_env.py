"""Gymnasium's vector environments, stepped on the CPU: `--env gymnasium:Walker2d-v5`."""

# The package is optional.
# pyright: reportMissingImports=false

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor

from echelon.envs.contract import Env, Groups, Step
from echelon.envs.mujoco_view import MujocoView
from echelon.errors import UserError, first_line

NO_LIMIT = 1000
"""Control steps that evaluation waits for an episode where the environment has no time limit."""


def make(name: str, num_envs: int, device: torch.device, seed: int, *, processes: bool = False, **args: Any) -> Env:
    """`num_envs` copies of a registered environment; with `processes`, each in a process of its own."""
    kind = "async" if processes else "sync"
    try:
        spec = gymnasium.spec(name)
        if spec.entry_point is None and spec.vector_entry_point is not None:
            env = gymnasium.make_vec(name, num_envs, "vector_entry_point", **args)
        else:
            same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
            env = gymnasium.make_vec(name, num_envs, kind, vector_kwargs=same_step, **args)
    except (gymnasium.error.Error, TypeError) as error:
        raise UserError(f"gymnasium cannot make {name}: {first_line(error)}") from None
    return GymnasiumEnv(env, device, seed)


class GymnasiumEnv:
    """A vector environment of any autoreset mode.

    Parts of an observation are flattened and put side by side, `Discrete` ones as one-hot vectors, unless the space is
    a `Dict` with a part called `policy`, whose parts then are the groups. Of `Discrete` actions the largest of as many
    outputs is taken.
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
        self._show(getattr(env, "envs", []))
        blank = create_empty_array(env.single_observation_space, env.num_envs, fn=np.zeros)
        self.obs_spec = {name: x.shape[1] for name, x in self._groups(blank).items()}

    def _show(self, envs: Sequence[Any]) -> None:
        """One environment on MuJoCo is `Simulated`, so that it can be recorded and played."""
        inside = envs[0].unwrapped if len(envs) == 1 else None
        if inside is not None and all(hasattr(inside, name) for name in ("model", "data", "frame_skip")):
            self.engine, self.substeps = MujocoView(inside.model, inside.data), int(inside.frame_skip)

    def reset(self) -> Groups:
        """Start a new episode in every environment; the first time from the seed."""
        obs, _ = self.env.reset(seed=self._seed)
        self._seed = None
        return self._groups(obs)

    def step(self, action: Tensor) -> Step:
        """Advance all environments by one control step."""
        obs, reward, terminated, truncated, info = self.env.step(self._action(action))
        done, final_obs = terminated | truncated, None
        if self._same_step:
            now = self._groups(obs)
            final_obs = self._final(now, info, done)
        elif done.any():  # they would be reset in the next step, whose action would then count for nothing
            final_obs = self._groups(obs)
            obs, _ = self.env.reset(options={"reset_mask": done})
            now = self._groups(obs)
        else:
            now = final_obs = self._groups(obs)
        reward = self._tensor(np.asarray(reward, np.float32))
        return Step(now, reward, self._tensor(terminated), self._tensor(truncated), final_obs)

    def _tensor(self, x: np.ndarray) -> Tensor:
        """On the device. Calls that do nothing are left out: between steps of a simulator each is slow."""
        return torch.from_numpy(x) if self._on_cpu else torch.from_numpy(x).to(self.device)

    def _action(self, action: Tensor) -> np.ndarray:
        x = (action if self._on_cpu else action.cpu()).numpy()
        if isinstance(self._space, spaces.Discrete):
            return x.argmax(1) + self._space.start
        return x.reshape(self.num_envs, *self._space.shape).astype(self._space.dtype)

    def _groups(self, obs: Any) -> Groups:
        space = self.env.single_observation_space
        if isinstance(space, spaces.Dict) and "policy" in space.spaces:
            parts = {name: _flat(space[name], obs[name]) for name in ("policy", "critic") if name in space.spaces}
        else:
            parts = {"policy": _flat(space, obs)}
        return {name: self._tensor(x) for name, x in parts.items()}

    def _final(self, now: Groups, info: Mapping[str, Any], done: np.ndarray) -> Groups:
        """Observations before a reset within the same step, which lie in `info` where an episode ended."""
        if "final_obs" not in info:
            return now
        rows = np.flatnonzero(done)
        last = concatenate(
            self.env.single_observation_space,
            [info["final_obs"][row] for row in rows],
            create_empty_array(self.env.single_observation_space, len(rows)),
        )
        index = self._tensor(rows)
        return {name: now[name].index_copy(0, index, x) for name, x in self._groups(last).items()}


def _flat(space: spaces.Space, x: Any) -> np.ndarray:
    """A batch of observations as float32 `[N, D]`."""
    if isinstance(space, spaces.Dict):
        return np.concatenate([_flat(part, x[name]) for name, part in space.spaces.items()], axis=1)
    if isinstance(space, spaces.Tuple):
        return np.concatenate([_flat(part, item) for part, item in zip(space.spaces, x, strict=True)], axis=1)
    if isinstance(space, spaces.Discrete):
        return np.eye(int(space.n), dtype=np.float32)[np.asarray(x) - space.start]
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return np.array(x, dtype=np.float32).reshape(len(x), -1)
    raise UserError(f"observations are Box, Discrete, MultiBinary, Dict or Tuple spaces, not {type(space).__name__}")

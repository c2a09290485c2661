"""MuJoCo Playground's environments: `--env playground:CheetahRun`. JAX and torch share memory; nothing is copied."""

# The package is optional.
# pyright: reportMissingImports=false

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from mujoco_playground import registry
from torch import Tensor

from echelon.envs.contract import Env, Groups, Step
from echelon.envs.torch_env import groups_of
from echelon.envs.view import MujocoView
from echelon.errors import UserError, nearest


def make_playground(name: str, num_envs: int, device: torch.device, seed: int, /, **args: Any) -> Env:
    """`num_envs` copies of an environment; `args` override its config."""
    if name not in registry.ALL_ENVS:
        raise UserError(f"{name} is not an environment of MuJoCo Playground{nearest(name, registry.ALL_ENVS)}")
    config = registry.get_default_config(name)
    length = int(args.get("episode_length", config.episode_length))
    return PlaygroundEnv(registry.load(name, config, config_overrides=args), num_envs, device, seed, length)


class PlaygroundEnv:
    """An environment whose episode ends restarts from its own first state, as in Playground's own training."""

    def __init__(self, env: Any, num_envs: int, device: torch.device, seed: int, episode_length: int) -> None:
        self.num_envs, self.device, self.episode_length = num_envs, device, episode_length
        self._env, self.action_dim = env, int(env.action_size)
        self._view: MujocoView | None = None
        kind = "cpu" if device.type == "cpu" else "gpu"
        self._jax_device = jax.devices(kind)[device.index or 0]
        self._key = jax.device_put(jax.random.PRNGKey(seed), self._jax_device)
        self._begin, step = jax.jit(jax.vmap(env.reset)), jax.vmap(env.step)

        def advance(state: Any, first: Any, clock: Any, action: Any) -> tuple[Any, ...]:
            state = step(state, action)
            ended, clock = state.done > 0, clock + 1
            cut = (clock >= episode_length) & ~ended
            over, last = ended | cut, state.obs

            def chosen(new: Any, old: Any) -> Any:
                if new.shape[:1] != over.shape:  # the same for all of them
                    return old
                return jnp.where(over.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

            data, obs = jax.tree.map(chosen, first, (state.data, state.obs))
            state = state.replace(data=data, obs=obs, done=jnp.zeros_like(state.done))
            return state, jnp.where(over, 0, clock), state.reward, ended, cut, last

        self._advance = jax.jit(advance)
        self.obs_spec = {name: x.shape[1] for name, x in self.reset().items()}

    def reset(self) -> Groups:
        self._key, key = jax.random.split(self._key)
        self._state = self._begin(jax.random.split(key, self.num_envs))
        self._first = self._state.data, self._state.obs
        self._clock = jax.device_put(jnp.zeros(self.num_envs, int), self._jax_device)
        return _shared(self._state.obs)

    def step(self, action: Tensor) -> Step:
        if self._view is not None:  # which may push it
            data = self._state.data
            push = data.xfrc_applied.at[0].set(self._view.xfrc_applied[0].numpy())
            self._state = self._state.replace(data=data.replace(xfrc_applied=push))
        action = jnp.from_dlpack(action.contiguous())
        self._state, self._clock, reward, ended, cut, last = self._advance(
            self._state, self._first, self._clock, action
        )
        reward, ended, cut = (torch.from_dlpack(x) for x in (reward, ended, cut))
        return Step(_shared(self._state.obs), reward, ended, cut, _shared(last))

    def drawing(self) -> MujocoView:
        """What shows the first environment."""
        model, substeps = self._env.mj_model, int(self._env.n_substeps)
        self._view = MujocoView(model, substeps, state=lambda field: np.asarray(getattr(self._state.data, field)[0]))
        return self._view


def _shared(obs: Any) -> Groups:
    """JAX's arrays as torch tensors, in place."""
    return groups_of(jax.tree.map(torch.from_dlpack, obs))

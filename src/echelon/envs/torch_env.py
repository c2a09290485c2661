"""Torch environments as mjlab, Isaac Lab and rsl_rl have them: many copies in one simulation, on the device.

`--env mjlab:Mjlab-Velocity-Flat-Unitree-Go1`, `--env isaaclab:Isaac-Repose-Cube-Allegro-v0`.
"""

# The packages are optional.
# pyright: reportMissingImports=false

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from echelon.envs.contract import Env, Groups, Step
from echelon.errors import UserError, nearest

NAMES = {"policy": ("policy", "actor", "state", "obs"), "critic": ("critic", "privileged_state", "privileged")}
"""Names of observations in other libraries, by group."""
_app: list[Any] = []
"""Isaac Sim, once it is started."""


def make_mjlab(name: str, num_envs: int, device: torch.device, seed: int, /, **args: Any) -> Env:
    """`num_envs` copies of a task; `args` are fields of its environment's config, such as `episode_length_s`."""
    import mjlab.tasks  # noqa: F401  # registers them
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import list_tasks, load_env_cfg

    if name not in list_tasks():
        raise UserError(f"{name} is not a task of mjlab{nearest(name, list_tasks())}")
    config = load_env_cfg(name)
    config.scene.num_envs, config.seed = num_envs, seed
    set_fields(config, args)
    if device.type == "cuda":  # `mujoco_warp.step` solves with our fused kernel, for the models that it supports
        with suppress(ImportError):  # a MuJoCo Warp with other parts
            from echelon.sim import newton

            newton.install()
    return TorchEnv(ManagerBasedRlEnv(cfg=config, device=str(device)))


def make_isaaclab(name: str, num_envs: int, device: torch.device, seed: int, /, **args: Any) -> Env:
    """`num_envs` copies of a task; `args` are fields of its environment's config, such as `episode_length_s`.

    Written against its documented interface and tested with a stand-in: Isaac Sim could not be installed where this
    was written.
    """
    from isaaclab.app import AppLauncher

    if not _app:  # the simulator runs once a process, and before anything of it can be imported
        _app.append(AppLauncher(headless=True))
    import gymnasium
    import isaaclab_tasks  # noqa: F401  # registers them
    from isaaclab_tasks.utils import parse_env_cfg

    config = parse_env_cfg(name, device=str(device), num_envs=num_envs)
    config.seed = seed
    set_fields(config, args)
    return TorchEnv(gymnasium.make(name, cfg=config).unwrapped)


def groups_of(obs: Any, chosen: Mapping[str, Sequence[str]] | None = None) -> Groups:
    """`policy` and `critic` among the observations, whatever they are called there, or as `chosen`: each may be several
    observations, one after another."""
    if isinstance(obs, Tensor):
        return {"policy": obs.float()}
    given = list(obs.keys())  # a TensorDict is not iterated by key
    first = {group: [name for name in names if name in given][:1] for group, names in NAMES.items()}
    for name in (name for names in (chosen or {}).values() for name in names):
        if name not in given:
            raise UserError(f"obs_groups names {name}, and the observations are {', '.join(map(str, given))}")
    parts = {group: [obs[name].float() for name in names] for group, names in (first | dict(chosen or {})).items()}
    found = {group: x[0] if len(x) == 1 else torch.cat(x, dim=-1) for group, x in parts.items() if x}
    if "policy" not in found:
        lacks = f"no observations for the policy among {', '.join(map(str, given))}"
        raise UserError(f"{lacks}; call them one of {', '.join(NAMES['policy'])}")
    for group, x in found.items():
        if x.ndim != 2:
            raise UserError(f"observations of {group} are [N, D], not {list(x.shape)}")
    return found


def set_fields(config: Any, args: Mapping[str, Any]) -> None:
    """Write `--env-arg` into the fields of a task's config. Those that hold objects cannot be written as text."""
    for field, value in args.items():
        if not hasattr(config, field):
            raise UserError(f"--env-arg {field} is not a field of the task's config{nearest(field, vars(config))}")
        now = getattr(config, field)
        kinds = (int, float) if type(now) in (int, float) else (type(now),)
        if now is not None and not isinstance(value, kinds):
            raise UserError(f"--env-arg {field} is of type {type(now).__name__} in the task's config, not {value!r}")
        setattr(config, field, value)


class TorchEnv:
    """A `ManagerBasedRLEnv` or `VecEnv`, which resets within the step.

    `env` has `num_envs`, `device` and `max_episode_length`; `reset() -> (obs, extras)`, or else `get_observations()`;
    and `step(action)`, which returns either `obs, reward, terminated, truncated, extras` or
    `obs, reward, dones, extras` with `time_outs` among the extras. Actions have the limits of `single_action_space`;
    with `num_actions` instead they have none. The observation before a reset is unknown, so `final_obs` is left out.

    What it logs in some steps only is held until the next report; names are those of the reset and the first step.
    """

    def __init__(self, env: Any, groups: Mapping[str, Sequence[str]] | None = None) -> None:
        """`groups` says which observations are `policy` and `critic`, if that does not follow from their names."""
        self._groups = groups
        self.env, self.num_envs, self.device = env, int(env.num_envs), torch.device(env.device)
        self.episode_length = int(torch.as_tensor(env.max_episode_length).max())
        space = getattr(env, "single_action_space", None)
        self.action_dim = int(env.num_actions if space is None else space.shape[-1])
        limits = (-torch.inf, torch.inf) if space is None else (space.low, space.high)
        self.action_low, self.action_high = (
            torch.as_tensor(x, dtype=torch.float32).expand(self.action_dim) for x in limits
        )
        on_mujoco = hasattr(getattr(env, "sim", None), "mj_model")  # mjlab
        self.drawing = self._view if on_mujoco else None
        self._log: dict[str, Tensor | float] = {}
        self._stepped = False
        self.obs_spec = {name: x.shape[1] for name, x in self.reset().items()}

    @torch.inference_mode()
    def reset(self) -> Groups:
        """Start a new episode in every environment, if it can."""
        found = self.env.reset() if hasattr(self.env, "reset") else self.env.get_observations()
        if not isinstance(found, tuple):
            return groups_of(found, self._groups)
        self._report(found[1])
        return groups_of(found[0], self._groups)

    @torch.inference_mode()
    def step(self, action: Tensor) -> Step:
        obs, reward, ended, *truncated, extras = self.env.step(action)
        ended = ended.bool()
        if truncated:
            cut = truncated[0].bool() & ~ended
        else:  # `ended` includes time limits
            over = extras.get("time_outs")
            cut = torch.zeros_like(ended) if over is None else over.bool() & ended
            ended = ended & ~cut
        self._report(extras)
        self._stepped = True
        return Step(groups_of(obs, self._groups), reward.float(), ended, cut, log=dict(self._log))

    def _view(self) -> Any:
        """What shows the first environment of mjlab."""
        from echelon.envs.view import MujocoView

        sim, substeps = self.env.sim, self.env.cfg.decimation
        return MujocoView(sim.mj_model, substeps, state=lambda field: getattr(sim.data, field)[0].cpu())

    def _report(self, extras: Any) -> None:
        reported = (extras.get("log") if isinstance(extras, Mapping) else None) or {}
        for name, x in reported.items():
            if not self._stepped or name in self._log:
                self._log[name] = x.float().mean() if isinstance(x, Tensor) else float(x)

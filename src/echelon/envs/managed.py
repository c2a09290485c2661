"""Torch environments that return five things from a step, as mjlab's and Isaac Lab's do: nothing leaves the device."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from echelon.envs.contract import Groups, Step
from echelon.errors import UserError, nearest

POLICY_NAMES = ("policy", "actor", "state", "obs")
CRITIC_NAMES = ("critic", "privileged_state", "privileged")


def groups_of(obs: Any) -> Groups:
    """`policy` and `critic` among the observations, whatever they are called there."""
    if isinstance(obs, Tensor):
        return {"policy": obs.float()}
    found: Groups = {}
    for group, names in (("policy", POLICY_NAMES), ("critic", CRITIC_NAMES)):
        for name in names:
            if name in obs.keys():  # noqa: SIM118  # a TensorDict is not iterated by key
                found[group] = obs[name].float()
                break
    if "policy" not in found:
        raise UserError(
            f"no observations for the policy among {', '.join(map(str, obs.keys()))}; "
            f"call them one of {', '.join(POLICY_NAMES)}"
        )
    for group, x in found.items():
        if x.ndim != 2:
            raise UserError(f"observations of {group} are [N, D], not {list(x.shape)}")
    return found


def set_fields(config: Any, args: Mapping[str, Any]) -> None:
    """Put `--env-arg` into the fields of a task's config. Those that hold objects cannot be written as text."""
    for field, value in args.items():
        if not hasattr(config, field):
            raise UserError(f"--env-arg {field} is not a field of the task's config{nearest(field, vars(config))}")
        now = getattr(config, field)
        kinds = (int, float) if type(now) in (int, float) else (type(now),)
        if now is not None and not isinstance(value, kinds):
            raise UserError(f"--env-arg {field} is of type {type(now).__name__} in the task's config, not {value!r}")
        setattr(config, field, value)


class HeldLog:
    """Figures that are reported in some steps only, each held until the next report."""

    def __init__(self) -> None:
        self._values: dict[str, Tensor | float] = {}
        self._open = True

    def __call__(self, extras: Mapping[str, Any] | None) -> dict[str, Tensor | float]:
        """Names are those of the reset and the first step."""
        reported = (extras or {}).get("log") or {}
        for name, x in reported.items():
            if self._open or name in self._values:
                self._values[name] = x.float().mean() if isinstance(x, Tensor) else float(x)
        return dict(self._values)

    def close(self) -> None:
        self._open = False


class ManagedEnv:
    """`env` has `num_envs`, `device`, `max_episode_length`, `single_action_space`, `reset() -> (obs, extras)` and
    `step(action) -> (obs, reward, terminated, truncated, extras)`, and resets within the step.

    It does not say what it saw before a reset, so `final_obs` is left out. Actions have the limits of its action space,
    which mostly are none.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.num_envs: int = env.num_envs
        self.device = torch.device(env.device)
        self.episode_length = int(env.max_episode_length)
        self._log = HeldLog()
        space = env.single_action_space
        self.action_dim = int(space.shape[-1])
        self.action_low, self.action_high = (
            torch.as_tensor(x, dtype=torch.float32).expand(self.action_dim) for x in (space.low, space.high)
        )
        self.obs_spec = {name: x.shape[1] for name, x in self.reset().items()}

    @torch.inference_mode()
    def reset(self) -> Groups:
        """Start a new episode in every environment."""
        obs, extras = self.env.reset()
        self._log(extras)
        return groups_of(obs)

    @torch.inference_mode()
    def step(self, action: Tensor) -> Step:
        """Advance all environments by one control step."""
        obs, reward, terminated, truncated, extras = self.env.step(action)
        log = self._log(extras)
        self._log.close()
        ended = terminated.bool()
        return Step(groups_of(obs), reward.float(), ended, truncated.bool() & ~ended, log=log)

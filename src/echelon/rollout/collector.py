"""Act in all environments for one horizon, and keep score of their episodes. All on the device."""

import warnings
from typing import Any

import torch
from torch import Tensor

from echelon.config import UpdateConfig
from echelon.device.capture import Source, draw
from echelon.device.fusion import fused
from echelon.envs.contract import (
    Adaptive,
    Env,
    Fusable,
    Groups,
    State,
    Step,
    bounded,
    require_observations,
    require_step,
)
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.acting import Actor
from echelon.rollout.buffer import Rollout
from echelon.rollout.episodes import Episodes
from echelon.rollout.layout import Layout

Cut = tuple[int, Tensor, Groups, Tensor]
"""A step, the environments whose episodes the time limit ended there, their last observations, and their states."""


class Collector:
    """Acts, and owns what persists between rollouts: the last row of the storage, and episode scores.

    Everything is written in place, so that a rollout can be captured as a CUDA graph (see `echelon.device.capture`).
    """

    def __init__(
        self,
        env: Env,
        model: ActorCritic,
        layout: Layout,
        config: UpdateConfig,
        generator: Source,
        *,
        fuse: bool = False,
    ) -> None:
        self.env, self.model, self.layout, self.config, self.generator = env, model, layout, config, generator
        n, device = env.num_envs, env.device
        self.rollout = Rollout.allocate(
            config.horizon, n, env.obs_spec, env.action_dim, model.state_dim, layout.policies, device
        )
        self.rollout.start.fill_(True)
        self.reward_scale: float | Tensor = config.reward_scale
        """Factor on the environment's reward; `[N]` where the members of a population differ in it."""
        self.episodes = Episodes(layout)
        self._bounded = bounded(env)
        self.lacks_final_obs = False
        """Whether the environment does not give the last observation of episodes that the time limit cuts."""
        self.actor = Actor(model, layout.policy_id)
        self.decide = fused(self.actor.decide, device, enabled=fuse)
        self._value = fused(self.actor.value, device, enabled=fuse)
        # The mean success of several ranks, which a curriculum follows, is not a part of compiled code.
        if fuse and isinstance(env, Fusable) and (layout.ranks.size == 1 or not isinstance(env, Adaptive)):
            env.fuse()
        self._checked = False
        """Whether a step of the environment was checked against the contract."""

    def reset(self) -> None:
        """Reset all environments: at the start of training, or on resume if the environment has no saved state."""
        obs = self.env.reset()
        require_observations(self.env, obs)
        for name, x in self.rollout.obs.items():
            if obs[name].dtype != x.dtype:
                warnings.warn(f"observations {name} are {obs[name].dtype}, and are taken as {x.dtype}", stacklevel=2)
        self._store_obs(-1, obs)
        self.rollout.state[-1] = 0.0
        self.rollout.start[-1] = True
        self.episodes.current.zero_()

    @torch.inference_mode()
    def collect(self) -> Rollout:
        """The next rollout, in the storage of the last one."""
        rollout = self.rollout
        rollout.log_std.copy_(self.model.log_std)
        rollout.final_value.zero_()
        for x in (*rollout.obs.values(), rollout.state, rollout.start):
            x[0] = x[-1]
        self.episodes.begin()
        cuts: list[Cut] = []
        for t in range(rollout.horizon):
            self._act(t, cuts)
        obs = {name: x[-1] for name, x in rollout.obs.items()}
        rollout.value[-1] = self._value(obs, rollout.state[-1])
        self._bootstrap(cuts)
        return rollout

    def _store_obs(self, t: int, obs: Groups) -> None:
        for name, x in self.rollout.obs.items():
            x[t] = obs[name]

    def _act(self, t: int, cuts: list[Cut]) -> None:
        rollout = self.rollout
        obs = {name: x[t] for name, x in rollout.obs.items()}
        noise = draw(self.generator, self.env.num_envs, self._noise)
        decision = self.decide(obs, rollout.state[t], noise)
        rollout.action[t], rollout.mean[t] = decision.action, decision.mean
        rollout.log_prob[t], rollout.value[t] = decision.log_prob, decision.value
        step = self.env.step(self._bounded(decision.action))
        if not self._checked:  # in the first rollout, which is never recorded as a graph
            require_step(self.env, step)
            self._checked = True
        rollout.reward[t] = step.reward * self.reward_scale
        rollout.terminated[t], rollout.truncated[t] = step.terminated, step.truncated
        self._note_cut(t, step, decision.state, cuts)
        self.episodes.record(step)
        done = step.terminated | step.truncated
        self._store_obs(t + 1, step.obs)
        rollout.start[t + 1] = done
        rollout.state[t + 1] = decision.state * (~done).unsqueeze(-1)

    def _noise(self, generator: torch.Generator, envs: int) -> Tensor:
        return torch.randn((envs, self.env.action_dim), generator=generator, device=self.env.device)

    def _note_cut(self, t: int, step: Step, state: Tensor, cuts: list[Cut]) -> None:
        """Bootstrap rows that the time limit cut.

        On CUDA every row is evaluated at once, because picking some would make the host wait. On a CPU the few that
        need it are set aside, and evaluated together when the rollout is complete.
        """
        rollout, how, cut = self.rollout, self.config.timeout_bootstrap, step.truncated & ~step.terminated
        final_obs = step.final_obs if how == "final_obs" else None
        if how == "final_obs" and final_obs is None:
            how, self.lacks_final_obs = "current_obs", True
        if how == "current_obs":
            rollout.final_value[t] = torch.where(cut, rollout.value[t], 0.0)
        elif final_obs is not None and cut.device.type == "cpu":
            rows = cut.nonzero().squeeze(-1)
            if len(rows):
                cuts.append((t, rows, {name: x[rows] for name, x in final_obs.items()}, state[rows]))
        elif final_obs is not None:
            final = self._value(final_obs, state)
            rollout.final_value[t] = torch.where(cut, final, 0.0)

    def _bootstrap(self, cuts: list[Cut]) -> None:
        """Evaluate the final observations that were set aside."""
        if not cuts:
            return
        steps, rows, last, states = zip(*cuts, strict=True)
        obs = {name: torch.cat([each[name] for each in last]) for name in self.rollout.obs}
        values = self.actor.value_of_some(obs, torch.cat(states), torch.cat(rows))
        for t, envs, value in zip(steps, rows, values.split([len(envs) for envs in rows]), strict=True):
            self.rollout.final_value[t, envs] = value

    def inherit(self, donor: int, policy: int) -> None:
        """Note that `policy` became a copy of `donor`: its environments keep their states, its memory is cleared."""
        block = self.layout.environments(policy)
        self.rollout.state[-1, block] = 0.0
        self.rollout.start[-1, block] = True
        self.episodes.inherit(donor, policy)

    def hand_over(self, moved: Tensor) -> None:
        """Give environments `[N]` to another policy: states are kept, memory is cleared, current episodes are not
        scored."""
        self.rollout.state[-1] *= ~moved[:, None]
        self.rollout.start[-1] |= moved
        self.episodes.hand_over(moved)

    def state_dict(self) -> State:
        rollout = self.rollout
        return {
            "obs": {name: x[-1].clone() for name, x in rollout.obs.items()},
            "state": rollout.state[-1].clone(),
            "start": rollout.start[-1].clone(),
            "episodes": self.episodes.state_dict(),
        }

    def load_state_dict(self, state: Any) -> None:
        self._store_obs(-1, state["obs"])
        self.rollout.state[-1] = state["state"]
        self.rollout.start[-1] = state["start"]
        self.episodes.load_state_dict(state["episodes"])

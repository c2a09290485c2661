"""Act in all environments for one horizon, and keep score of their episodes. All on the device."""

from typing import Any

import torch
from torch import Tensor

from echelon.config import UpdateConfig
from echelon.envs.contract import Env, Groups, State, Step
from echelon.learning.layout import Layout
from echelon.models.actor_critic import ActorCritic, Output
from echelon.rollout.buffer import Rollout
from echelon.rollout.episodes import Episodes


class Collector:
    """Owns what lives on between rollouts: the current observation, recurrent state and episode scores."""

    def __init__(
        self, env: Env, model: ActorCritic, layout: Layout, config: UpdateConfig, generator: torch.Generator
    ) -> None:
        self.env, self.model, self.layout, self.config, self.generator = env, model, layout, config, generator
        n, device = env.num_envs, env.device
        self.rollout = Rollout.allocate(
            config.horizon, n, env.obs_spec, env.action_dim, model.state_dim, layout.policies, device
        )
        self.episodes = Episodes(layout)
        self.obs: Groups = {}
        self.state = torch.zeros(n, model.state_dim, device=device)
        self.start = torch.ones(n, dtype=torch.bool, device=device)
        self._never = torch.zeros(1, n, dtype=torch.bool, device=device)

    def reset(self) -> None:
        """Start every episode anew: once, when training begins."""
        self.obs = self.env.reset()

    @torch.no_grad()
    def collect(self) -> Rollout:
        """The next rollout, in the storage of the last one."""
        rollout = self.rollout
        rollout.log_std.copy_(self.model.log_std)
        self.episodes.begin()
        for t in range(rollout.horizon):
            self._store_state(t)
            self._act(t)
        self._store_state(rollout.horizon)
        rollout.value[-1] = self.model.raw_value(self._evaluate(self.obs, self.state).value[0])
        return rollout

    def _store_state(self, t: int) -> None:
        for name, x in self.obs.items():
            self.rollout.obs[name][t] = x
        self.rollout.state[t] = self.state
        self.rollout.start[t] = self.start

    def _act(self, t: int) -> None:
        rollout, output = self.rollout, self._evaluate(self.obs, self.state)
        noise = torch.randn(output.mean.shape, generator=self.generator, device=output.mean.device)
        action = output.mean + output.log_std.exp() * noise
        rollout.action[t], rollout.mean[t] = action[0], output.mean[0]
        rollout.log_prob[t] = output.log_prob(action)[0]
        rollout.value[t] = self.model.raw_value(output.value[0])
        step = self.env.step(action[0].clamp(-1, 1))
        rollout.reward[t] = step.reward * self.config.reward_scale
        rollout.terminated[t], rollout.truncated[t] = step.terminated, step.truncated
        rollout.final_value[t] = self._final_value(step, rollout.value[t], output.state)
        self.episodes.record(step)
        self.obs, self.start = step.obs, step.terminated | step.truncated
        self.state = output.state * (~self.start).unsqueeze(-1)

    def _final_value(self, step: Step, value: Tensor, state: Tensor) -> Tensor:
        """What truncated rows are bootstrapped with; zero elsewhere."""
        how, cut = self.config.timeout_bootstrap, step.truncated & ~step.terminated
        if how == "none" or (cut.device.type == "cpu" and not cut.any()):
            return torch.zeros_like(value)
        if how == "final_obs":
            value = self.model.raw_value(self._evaluate(step.final_obs, state).value[0])
        return torch.where(cut, value, 0.0)

    def _evaluate(self, obs: Groups, state: Tensor) -> Output:
        """One step of the network in all environments; `state` is already zero where an episode begins."""
        return self.model({name: x[None] for name, x in obs.items()}, self.layout.policy_id, state, self._never)

    def state_dict(self) -> State:
        return {"obs": self.obs, "state": self.state, "start": self.start, "episodes": self.episodes.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        self.obs = {name: x.to(self.state.device) for name, x in state["obs"].items()}
        self.state.copy_(state["state"])
        self.start.copy_(state["start"])
        self.episodes.load_state_dict(state["episodes"])

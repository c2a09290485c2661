"""A student's environment: in every state its teacher, the leader of another run, says what it would do."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from echelon.algorithms import TeacherConfig
from echelon.envs.contract import TARGET, Adaptive, Env, Groups, State, Step, bounded
from echelon.envs.observed import Observer, Wrapped
from echelon.errors import UserError
from echelon.runs.trained import Trained


class Taught(Wrapped):
    """Adds the group `target`: the teacher's means. For its first `fade` steps the teacher also acts in a part of the
    environments, which falls from all to none. Nothing here is random, and the teacher never changes."""

    def __init__(self, env: Env, teacher: Trained, fade: int) -> None:
        super().__init__(env)
        self.observer = Observer(env, teacher.config.obs, teacher.config.history)
        if (self.observer.spec, env.action_dim) != (teacher.interface["obs_spec"], teacher.interface["action_dim"]):
            raise UserError(f"{teacher.folder.path} has other observations or actions than these, so it cannot teach")
        if isinstance(env, Adaptive):
            env.adopt(teacher.env_state, fixed=False)
        teacher.model.to(env.device).requires_grad_(False)
        self.actor = teacher.actor(teacher.leader, env.num_envs)
        self.obs_spec = {**env.obs_spec, TARGET: env.action_dim}
        self._bounded, self._fade = bounded(env), fade
        zeros = torch.zeros(env.num_envs, env.action_dim + self.actor.model.state_dim, device=env.device)
        self.target, self.memory = zeros.split((env.action_dim, self.actor.model.state_dim), dim=1)
        """The teacher's means in the current state, and its recurrent state after it."""
        self.clock = torch.zeros((), device=env.device)
        self._places = (torch.arange(env.num_envs, device=env.device) + 0.5) / env.num_envs

    def reset(self) -> Groups:
        return self._shown(self.env.reset(), self._places > 0)

    def step(self, action: Tensor) -> Step:
        share = (1 - self.clock / self._fade).clamp(min=0) if self._fade else 0.0
        if self._fade:
            action = torch.where((self._places < share)[:, None], self._bounded(self.target), action)
        self.clock += 1
        step = self.env.step(action)
        obs = self._shown(step.obs, step.terminated | step.truncated)
        final_obs = None if step.final_obs is None else step.final_obs | {TARGET: obs[TARGET]}
        return replace(step, obs=obs, final_obs=final_obs, log={**step.log, "taught": share})

    def _shown(self, obs: Groups, start: Tensor) -> Groups:
        """The observations, and what the teacher would do."""
        decision = self.actor.decide(self.observer.observe(obs, start), self.memory * ~start[:, None], None)
        self.target.copy_(decision.mean)
        self.memory.copy_(decision.state)
        return obs | {TARGET: decision.mean}

    def own_state(self) -> State:
        kept = {"target": self.target.clone(), "memory": self.memory.clone(), "clock": self.clock.clone()}
        return kept | {"observer": self.observer.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        self.env.load_state_dict(state["inner"])  # pyright: ignore[reportAttributeAccessIssue]  # it saved it
        for name in ("target", "memory", "clock"):
            getattr(self, name).copy_(state["own"][name])
        self.observer.load_state_dict(state["own"]["observer"])


def taught(env: Env, config: TeacherConfig, horizon: int) -> Env:
    """`env` with the teacher that `config` names."""
    return Taught(env, Trained.load(config.run or "", config.checkpoint or "newest"), config.fade * horizon)

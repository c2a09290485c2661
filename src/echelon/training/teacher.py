"""A student's environment: in every state its teacher, the leader of another run, says what it would do."""

from dataclasses import replace

import torch
from torch import Tensor

from echelon.envs.contract import TARGET, Adaptive, Env, Groups, Step, bounded
from echelon.envs.observed import Observer, Wrapped
from echelon.errors import UserError
from echelon.runs.trained import Trained


class Taught(Wrapped):
    """Adds the group `target`: the teacher's means. For its first `fade` steps the teacher also acts in a part of the
    environments, which falls from all to none. Nothing here is random, and the teacher never changes."""

    def __init__(self, env: Env, teacher: Trained, fade: int) -> None:
        self.observer = Observer(env, teacher.config.obs, teacher.config.history)
        if (self.observer.spec, env.action_dim) != (teacher.interface["obs_spec"], teacher.interface["action_dim"]):
            raise UserError(f"{teacher.folder.path} has other observations or actions than these, so it cannot teach")
        if isinstance(env, Adaptive):
            env.adopt(teacher.env_state, fixed=False)
        teacher.model.to(env.device).requires_grad_(False)
        self.actor = teacher.actor(teacher.leader, env.num_envs)
        self.obs_spec = {**env.obs_spec, TARGET: env.action_dim}
        self._bounded, self._fade = bounded(env), fade
        widths = env.action_dim, self.actor.model.state_dim
        self.target, self.memory = (torch.zeros(env.num_envs, width, device=env.device) for width in widths)
        """The teacher's means in the current state, and its recurrent state after it."""
        self.teacher_clock = torch.zeros((), device=env.device)
        """Steps since training began; on resume it follows from the iteration, as some environments save no state."""
        super().__init__(env, {"target": self.target, "memory": self.memory} | self.observer.last)
        self._places = (torch.arange(env.num_envs, device=env.device) + 0.5) / env.num_envs

    def reset(self) -> Groups:
        return self._shown(self.env.reset(), self._places > 0)

    def step(self, action: Tensor) -> Step:
        share = (1 - self.teacher_clock / self._fade).clamp(min=0) if self._fade else 0.0
        if self._fade:
            action = torch.where((self._places < share)[:, None], self._bounded(self.target), action)
        self.teacher_clock += 1
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

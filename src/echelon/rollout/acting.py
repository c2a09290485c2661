"""How policies act: from observations and memory to actions, in training, evaluation and viewing."""

from dataclasses import dataclass

import torch
from torch import Tensor

from echelon.envs.contract import Env, Groups, Step, bounded
from echelon.models.actor_critic import Networks, Output


@dataclass
class Decision:
    """Actions, values and next recurrent states of the policies, `[N, ...]` each."""

    action: Tensor
    mean: Tensor
    log_prob: Tensor
    value: Tensor
    state: Tensor


class Actor:
    """Networks, and the policy that acts in each of N environments: network by network, an equal number for each."""

    def __init__(self, model: Networks, policy_id: Tensor) -> None:
        self.model, self.policy_id = model, policy_id
        self._never = torch.zeros(1, len(policy_id), dtype=torch.bool, device=policy_id.device)

    def decide(self, obs: Groups, state: Tensor, noise: Tensor | None) -> Decision:
        """Act by the policies' Gaussians, `noise` standard deviations from the mean; at the mean without it."""
        output = self.evaluate(obs, state)
        action, log_prob = output.sample(noise)
        value = self.model.raw_value(output.value[0])
        return Decision(action[0], output.mode[0], log_prob[0], value, output.state)

    def value(self, obs: Groups, state: Tensor) -> Tensor:
        """`[N]` in units of scaled reward."""
        return self.model.raw_value(self.evaluate(obs, state).value[0])

    def value_of_some(self, obs: Groups, state: Tensor, rows: Tensor) -> Tensor:
        """`value` of some environments `rows` `[n]`, in any order. Every network evaluates all of them, and each row
        takes its own network's value."""
        networks, each = self.model.networks, self.model.policies // self.model.networks
        policy = self.policy_id[rows]
        first = torch.arange(networks, device=rows.device)[:, None] * each
        ids, never = (first + policy % each).flatten(), self._never[:, :1].expand(1, networks * len(rows))
        everywhere = {name: torch.cat([x] * networks) for name, x in obs.items()}
        output = self._evaluate(everywhere, state.repeat(networks, 1), ids, never)
        values = self.model.raw_value(output.value[0]).view(networks, -1)
        return values[policy // each, torch.arange(len(rows), device=rows.device)]

    def evaluate(self, obs: Groups, state: Tensor) -> Output:
        """One step of the networks; `state` is already zero where an episode begins."""
        return self._evaluate(obs, state, self.policy_id, self._never)

    def _evaluate(self, obs: Groups, state: Tensor, policy_id: Tensor, start: Tensor) -> Output:
        kind = state.dtype  # what NumPy people observe is float64
        groups = {name: x[None].to(kind) if x.is_floating_point() else x[None] for name, x in obs.items()}
        return self.model(groups, policy_id, state, start)


class Player:
    """Lets policies act in all environments, from `reset` on; memory is cleared where an episode ends."""

    def __init__(self, env: Env, actor: Actor) -> None:
        self.env, self.actor = env, actor
        self._bounded = bounded(env)
        self.obs: Groups = {}
        self.state = torch.zeros(env.num_envs, actor.model.state_dim, device=env.device)

    def reset(self) -> None:
        """Start an episode in every environment."""
        self.obs = self.env.reset()
        self.state.zero_()

    def step(self, generator: torch.Generator | None = None) -> Step:
        """One control step, at the policies' means, or sampled with a generator."""
        noise = None
        if generator is not None:
            shape = (self.env.num_envs, self.env.action_dim)
            noise = torch.randn(shape, generator=generator, device=self.env.device)
        return self.act(noise)

    @torch.no_grad()
    def act(self, noise: Tensor | None) -> Step:
        """One control step, `noise` `[N, A]` standard deviations from the policies' means."""
        decision = self.actor.decide(self.obs, self.state, noise)
        step = self.env.step(self._bounded(decision.action))
        goes_on = ~(step.terminated | step.truncated)
        self.obs, self.state = step.obs, decision.state * goes_on.unsqueeze(-1)
        return step

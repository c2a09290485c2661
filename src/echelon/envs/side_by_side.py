"""Several environments of one kind as one: their copies lie one environment after another."""

from collections.abc import Sequence

import torch
from torch import Tensor

from echelon.envs.contract import Bounded, Env, Groups, Step


class SideBySide:
    """Steps environments one after another, outside of CUDA graphs. Each keeps its own random numbers, curriculum and
    state, and saves them itself."""

    def __init__(self, envs: Sequence[Env]) -> None:
        self.envs, first = list(envs), envs[0]
        self.num_envs = sum(env.num_envs for env in envs)
        self.action_dim, self.obs_spec, self.device = first.action_dim, first.obs_spec, first.device
        self.episode_length = first.episode_length
        if isinstance(first, Bounded):
            self.action_low, self.action_high = first.action_low, first.action_high

    def reset(self) -> Groups:
        return _joined([env.reset() for env in self.envs])

    def step(self, action: Tensor) -> Step:
        actions = action.split([env.num_envs for env in self.envs])
        steps = [env.step(part) for env, part in zip(self.envs, actions, strict=True)]
        finals = [step.final_obs for step in steps if step.final_obs is not None]
        return Step(
            obs=_joined([step.obs for step in steps]),
            reward=torch.cat([step.reward for step in steps]),
            terminated=torch.cat([step.terminated for step in steps]),
            truncated=torch.cat([step.truncated for step in steps]),
            final_obs=_joined(finals) if len(finals) == len(steps) else None,
            log={name: self._logged(name, steps) for name in steps[0].log},
        )

    def _logged(self, name: str, steps: Sequence[Step]) -> Tensor:
        """What was logged under a name, `[N]`, also where it holds for all copies of an environment."""
        given = (step.log[name] for step in steps)
        found = (x if isinstance(x, Tensor) else torch.full((), float(x), device=self.device) for x in given)
        return torch.cat([x.to(self.device).expand(env.num_envs) for env, x in zip(self.envs, found, strict=True)])


def _joined(groups: Sequence[Groups]) -> Groups:
    return {name: torch.cat([group[name] for group in groups]) for name in groups[0]}

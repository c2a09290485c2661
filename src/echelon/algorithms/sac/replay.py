"""The last steps of all environments, in a ring on the device: how they are collected, and rows drawn from it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from echelon.algorithms import SacTrainConfig
from echelon.algorithms.sac.networks import SacNetworks
from echelon.device.fusion import fuses
from echelon.envs.contract import Adaptive, Env, Groups, Size, State, Step, dtype_of, shape_of
from echelon.errors import UserError
from echelon.rollout.buffer import Rollout
from echelon.rollout.collector import Collector, Cut
from echelon.rollout.layout import Layout

OUTLIERS = 4.0
"""Deviations above the mean at which a magnitude counts as the largest: one that runs away does not set the scale."""


@dataclass
class Rows:
    """B rows with the returns of up to n steps after them."""

    obs: Groups
    """`[B, D]` each, raw."""
    action: Tensor
    """`[B, A]`"""
    reward: Tensor
    """`[B]`: Σ γⁱ r_i until the n-th step or the end of the episode."""
    factor: Tensor
    """`[B]`: γ to the number of these steps, or 0 where the value after them is 0."""
    following: Groups
    """Observations after these steps, where they are bootstrapped; before the reset if the episode ended there."""


class Replay:
    """C steps of N environments, `[C, N, ...]`. The position of the next step is a tensor, so that storing and drawing
    can be recorded as CUDA graphs."""

    def __init__(
        self, capacity: int, num_envs: int, obs_spec: Mapping[str, Size], action_dim: int, device: torch.device
    ) -> None:
        self.capacity, self.num_envs, self.groups = capacity, num_envs, list(obs_spec)
        numbers = {f"{when}/{name}": size for name, size in obs_spec.items() for when in ("obs", "following")}

        def empty(*shape: int, dtype: torch.dtype | None = None) -> Tensor:
            return torch.zeros(capacity, num_envs, *shape, dtype=dtype, device=device)

        try:
            self.stored = {name: empty(*shape_of(size), dtype=dtype_of(size)) for name, size in numbers.items()}
            self.stored |= {"action": empty(action_dim), "reward": empty()}
            self.stored |= {name: empty(dtype=torch.bool) for name in ("ended", "final")}
        except RuntimeError as error:
            large = f"a replay of {capacity * num_envs:,} rows does not fit into the memory of the {device.type}"
            raise UserError(f"{large}; give --sac.replay a smaller number") from error
        self.head = torch.zeros(1, dtype=torch.long, device=device)
        self.filled = torch.zeros_like(self.head)
        """Steps that are stored, at most C."""

    def store(self, **step: Any) -> None:
        """Store a step: `obs`, `following`, `action`, `reward`, whether the value after it is 0 (`ended`), and whether
        the episode ends with it (`final`)."""
        step |= {f"{when}/{name}": x for when in ("obs", "following") for name, x in step[when].items()}
        for name, x in self.stored.items():
            x.index_copy_(0, self.head, step[name][None].to(x.dtype))
        self.head.copy_((self.head + 1) % self.capacity)
        self.filled.copy_((self.filled + 1).clamp(max=self.capacity))

    def cut(self) -> None:
        """Note that environments were reset from outside: no return runs on from the last step."""
        self.stored["final"].index_fill_(0, (self.head - 1) % self.capacity, True)

    def forget(self, where: Tensor, keep: int) -> None:
        """Keep the newest steps only, if `where` `[1]`."""
        self.filled.copy_(torch.where(where, self.filled.clamp(max=keep), self.filled))

    def draw(self, drawn: Tensor, n_step: int, discount: float) -> Rows:
        """Rows for numbers `drawn` `[2, B]` in [0, 1): an environment, and a step that n-1 others follow."""
        stored, count = self.stored, self.filled - n_step + 1
        envs = (drawn[0] * self.num_envs).long().clamp(max=self.num_envs - 1)
        age = n_step - 1 + torch.minimum((drawn[1] * count).long(), count - 1)
        first = (self.head - 1 - age) % self.capacity
        reward, factor = torch.zeros_like(drawn[0]), torch.ones_like(drawn[0])
        going = torch.ones_like(envs, dtype=torch.bool)
        last, ended = first, ~going
        for number in range(n_step):
            here = (first + number) % self.capacity
            reward = reward + torch.where(going, factor * stored["reward"][here, envs], 0.0)
            factor = torch.where(going, factor * discount, factor)
            last, ended = torch.where(going, here, last), torch.where(going, stored["ended"][here, envs], ended)
            going = going & ~stored["final"][here, envs]
        obs, following = (
            {name: stored[f"{when}/{name}"][at, envs] for name in self.groups}
            for when, at in (("obs", first), ("following", last))
        )
        return Rows(obs, stored["action"][first, envs], reward, factor * ~ended, following)

    def state_dict(self) -> State:
        """What is stored, the oldest first."""
        filled = int(self.filled)
        order = (self.head - filled + torch.arange(filled, device=self.head.device)) % self.capacity
        return {name: x[order] for name, x in self.stored.items()}

    def load_state_dict(self, state: Any) -> None:
        """Take over the newest steps of what another replay stored, of any capacity."""
        filled = min(self.capacity, len(state["reward"]))
        for name, x in self.stored.items():
            x[:filled] = state[name][len(state[name]) - filled :]
        self.filled.fill_(filled)
        self.head.fill_(filled % self.capacity)


class ReplayCollector(Collector):
    """A rollout is one step, which is stored in the replay; statistics of observations and returns learn from it."""

    def __init__(
        self, env: Env, model: SacNetworks, layout: Layout, config: SacTrainConfig, generator: torch.Generator
    ) -> None:
        one_step, fuse = replace(config.update, horizon=1), fuses(env.device, config.fuse)
        super().__init__(env, model, layout, one_step, generator, fuse=fuse)  # pyright: ignore[reportArgumentType]
        self.networks, self.sac = model, config.sac
        assert config.sac.persistence is not None
        self.persistence = config.sac.persistence
        whole = config.num_iterations * config.steps_per_iteration
        steps = max(min(self.sac.replay, whole) // config.num_envs, self.sac.warm_up or 0)
        self.replay = Replay(steps, env.num_envs, env.obs_spec, env.action_dim, env.device)
        quietest, loudest = self.sac.ladder
        rank, size = layout.ranks.rank, layout.ranks.size
        place = torch.linspace(0, 1, size * env.num_envs, device=env.device).chunk(size)[rank]
        self.loudness = (quietest * (loudest / quietest) ** place)[:, None]
        self.noise = torch.zeros(env.num_envs, env.action_dim, device=env.device)
        self.returns = torch.zeros(env.num_envs, device=env.device)
        """Discounted return of every episode so far."""
        self.far = torch.zeros(2, device=env.device)
        """Observations and returns of this iteration that were too far away to count in full."""
        given: Tensor | None = getattr(env, "difficulty", None) if isinstance(env, Adaptive) else None
        self._difficulty = torch.zeros(1, device=env.device) if given is None else given.view(1)
        self.paid_at = self._difficulty.clone()
        """`[1]`: the difficulty at which stored rewards were paid."""

    def reset(self) -> None:
        super().reset()
        assert isinstance(self.generator, torch.Generator)
        self.noise.copy_(super()._noise(self.generator, self.env.num_envs))
        self.returns.zero_()
        self.replay.cut()

    @torch.inference_mode()
    def collect(self) -> Rollout:
        """One step."""
        rollout, ranks = self.rollout, self.layout.ranks
        for x in (*rollout.obs.values(), rollout.state, rollout.start):
            x[0] = x[-1]
        self._act(0, [])
        self.far[:1] += self.networks.merge_observations({name: x[:-1] for name, x in rollout.obs.items()}, ranks)
        return rollout

    def _noise(self, generator: torch.Generator, envs: int) -> Tensor:
        again = torch.rand((envs, 1), generator=generator, device=self.env.device) < self.persistence
        self.noise.copy_(torch.where(again, self.noise, super()._noise(generator, envs)))
        return self.noise * self.loudness

    def _note_cut(self, t: int, step: Step, state: Tensor, cuts: list[Cut]) -> None:
        """Store the step. Where an episode ends, what follows is its last observation, or without one the observation
        before. Elsewhere it is the next observation: `final_obs` may show a goal that was replaced since."""
        rollout, how = self.rollout, self.config.timeout_bootstrap
        done = step.terminated | step.truncated
        now, last = {name: x[t] for name, x in rollout.obs.items()}, step.final_obs
        if last is None or how != "final_obs":
            last, self.lacks_final_obs = now, how == "final_obs"
        self.replay.store(
            obs=now,
            following={name: torch.where(done[:, None], last[name], x) for name, x in step.obs.items() if name in now},
            action=rollout.action[t],
            reward=rollout.reward[t],
            ended=done if how == "none" else step.terminated,
            final=done,
        )
        # A critic cannot tell rewards of an easier level from those that the policy would get now.
        self.replay.forget(self._difficulty != self.paid_at, keep=self.sac.warm_up or 1)
        self.paid_at.copy_(self._difficulty)
        self._scale(rollout.reward[t])
        self.returns.masked_fill_(done, 0.0)

    def _scale(self, reward: Tensor) -> None:
        """Take the returns so far into the statistics that rewards are scaled by."""
        model, ranks = self.networks, self.layout.ranks
        self.returns.mul_(self.config.discount).add_(reward)
        limited, far = model.return_norm.limited(self.returns[:, None])
        model.return_norm.merge(limited, ranks)
        std, mean = ranks.std_mean(limited.abs(), (0,))
        model.largest.copy_(torch.maximum(model.largest, mean + OUTLIERS * std))
        self.far[1:] += far

    def state_dict(self) -> State:
        own = {"noise": self.noise, "returns": self.returns, "paid_at": self.paid_at}
        return {**super().state_dict(), **own, "replay": self.replay.state_dict() if self.sac.save_replay else {}}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.noise.copy_(state["noise"])
        self.returns.copy_(state["returns"])
        self.paid_at.copy_(state.get("paid_at", self.paid_at))  # it may be younger than the run
        if state["replay"]:
            self.replay.load_state_dict(state["replay"])

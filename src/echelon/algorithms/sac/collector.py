"""Acting for a replay: one step of all environments at a time, with noise that repeats."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from echelon.algorithms import SacTrainConfig
from echelon.algorithms.sac.networks import SacNetworks
from echelon.algorithms.sac.replay import Replay
from echelon.device.fusion import fuses
from echelon.envs.contract import Env, State, Step
from echelon.rollout.buffer import Rollout
from echelon.rollout.collector import Collector, Cut
from echelon.rollout.layout import Layout

OUTLIERS = 4.0
"""Deviations above the mean at which a magnitude counts as the largest: one that runs away does not set the scale."""


class ReplayCollector(Collector):
    """A rollout is one step, which is stored in the replay; statistics of observations and returns learn from it."""

    def __init__(
        self,
        env: Env,
        model: SacNetworks,
        layout: Layout,
        config: SacTrainConfig,
        replay: Replay,
        generator: torch.Generator,
    ) -> None:
        one_step, fuse = replace(config.update, horizon=1), fuses(env.device, config.fuse)
        super().__init__(env, model, layout, one_step, generator, fuse=fuse)  # pyright: ignore[reportArgumentType]
        self.networks, self.sac, self.replay = model, config.sac, replay
        quietest, loudest = config.sac.ladder
        rank, size = layout.ranks.rank, layout.ranks.size
        place = torch.linspace(0, 1, size * env.num_envs, device=env.device).chunk(size)[rank]
        self.loudness = (quietest * (loudest / quietest) ** place)[:, None]
        self.noise = torch.zeros(env.num_envs, env.action_dim, device=env.device)
        self.returns = torch.zeros(env.num_envs, device=env.device)
        """Discounted return of every episode so far."""
        self.far = torch.zeros(2, device=env.device)
        """Observations and returns of this iteration that were too far away to count in full."""

    def reset(self) -> None:
        super().reset()
        assert isinstance(self.generator, torch.Generator)
        self.noise.copy_(super()._noise(self.generator, self.env.num_envs))
        self.returns.zero_()
        self.replay.cut()

    def begin(self) -> None:
        """Begin an iteration: figures are averaged from here."""
        self.episodes.begin()
        self.far.zero_()

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
        again = torch.rand((envs, 1), generator=generator, device=self.env.device) < self.sac.persistence
        self.noise.copy_(torch.where(again, self.noise, super()._noise(generator, envs)))
        return self.noise * self.loudness

    def _note_cut(self, t: int, step: Step, state: Tensor, cuts: list[Cut]) -> None:
        """Store the step. Where the time limit cut an episode, what follows is its last observation, or without one the
        observation before."""
        rollout, how = self.rollout, self.config.timeout_bootstrap
        done = step.terminated | step.truncated
        now, following = {name: x[t] for name, x in rollout.obs.items()}, step.final_obs
        if following is None or how != "final_obs":
            self.lacks_final_obs = how == "final_obs"
            following = {name: torch.where(done[:, None], x, step.obs[name].to(x.dtype)) for name, x in now.items()}
        self.replay.store(
            obs=now,
            following={name: following[name] for name in now},
            action=rollout.action[t],
            reward=rollout.reward[t],
            ended=done if how == "none" else step.terminated,
            final=done,
        )
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
        own = {"noise": self.noise, "returns": self.returns}
        return {**super().state_dict(), **own, "replay": self.replay.state_dict() if self.sac.save_replay else {}}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.noise.copy_(state["noise"])
        self.returns.copy_(state["returns"])
        if state["replay"]:
            self.replay.load_state_dict(state["replay"])

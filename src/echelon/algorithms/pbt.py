"""DexPBT: members trained by PPO; at intervals the worst copy the best and try other hyperparameters.

Petrenko et al. 2023, section III. Every member has a network of its own, and each setting of the update that may mutate
is a vector over members. `evolution.py` has the rules.
"""

import math
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from echelon.algorithms import Mutable, PbtTrainConfig
from echelon.algorithms.algorithm import Algorithm, Parts, Takeover
from echelon.algorithms.evolution import BROKEN, Evolution, ranked
from echelon.algorithms.ppo import actor_loss
from echelon.envs.contract import State
from echelon.errors import UserError
from echelon.rollout.layout import Layout

SCALE = "env."
"""Prefix of the name of a task's reward scale."""


def vectors(config: PbtTrainConfig, layout: Layout) -> dict[str, Tensor]:
    """Hyperparameters that may mutate, `[M]` each; the learning rate is a vector of the optimizer."""
    names = [name for name in typing.get_args(Mutable) if name != "learning_rate"]
    return {name: _vector(getattr(config.update, name), layout) for name in names}


def _vector(value: float, layout: Layout) -> Tensor:
    return torch.full((layout.policies,), float(value), dtype=torch.float64, device=layout.device)


class Population:
    """Replaces members between iterations.

    CUDA graphs keep their shapes: takeovers write into the stacked tensors, after the update. The environments of a
    member that copies other weights keep their states; its memory is cleared, its current episodes are not scored, and
    until new ones end it has the scores of the member it copied.
    """

    def __init__(self, parts: Parts[PbtTrainConfig]) -> None:
        self.parts, self.leader = parts, 0
        env, layout = parts.env, parts.layout
        self.objective = getattr(env, "objective", "return")
        self._scales = getattr(env, "reward_scales", {})
        self.vectors = {"learning_rate": parts.update.optimizer.rate} | parts.settings.vectors
        self.vectors |= {SCALE + name: _vector(float(x.flatten()[0]), layout) for name, x in self._scales.items()}
        self.evolution = Evolution(layout.policies, parts.config.pbt, parts.config.seed)
        if parts.config.pbt.mutate_at_start:
            self.write(self.evolution.start(self.start()))

    def metrics(self) -> dict[str, Tensor]:
        """Scores of all members; the leader is the one with the highest objective."""
        episodes = self.parts.collector.episodes
        if self.objective not in episodes.names:
            raise UserError(f"{self.objective} is the task's objective, but it reports no episode/{self.objective}")
        objective = episodes.objective(self.objective)
        objective = torch.where(objective.isfinite(), objective, torch.nan)
        objective = torch.where(self.parts.update.finite(), objective, BROKEN)
        lowest = torch.finfo(objective.dtype).min
        best = objective.nan_to_num(nan=lowest, neginf=-math.inf).argmax(dim=0, keepdim=True)
        by_policy = {"objective": objective} | {f"pbt/{name}": x for name, x in self.vectors.items()}
        each = {f"{name}/policy_{i}": x[i] for name, x in by_policy.items() for i in range(len(objective))}
        leading = {"pbt/best": best[0], "lr": self.parts.update.optimizer.rate.index_select(0, best)[0]}
        return episodes.metrics(best) | each | leading

    def after(self, iteration: int, metrics: Mapping[str, float]) -> Sequence[Takeover]:
        """Replace members that are not finite; check the others if an interval has passed."""
        layout = self.parts.layout
        objectives = [metrics[f"objective/policy_{i}"] for i in range(layout.policies)]
        self.leader = ranked(objectives)[0]
        steps = iteration * self.parts.config.update.horizon * layout.envs * layout.ranks.size
        takeovers = self.evolution.replace_broken(steps, objectives, self.start()) if BROKEN in objectives else []
        for takeover in takeovers:
            self.apply(takeover)
            objectives[takeover.member] = math.nan  # a copy has no objective of its own yet
        self.evolution.observe(objectives)
        if not self.evolution.due(steps):
            return takeovers
        checked = self.evolution.check(steps, objectives, self.start())
        for takeover in checked:
            self.apply(takeover)
        return [*takeovers, *checked]

    def score(self, metrics: Mapping[str, float]) -> float:
        """The best member's objective. Not its return, whose scale may mutate."""
        return metrics[f"objective/policy_{self.leader}"]

    def start(self) -> list[dict[str, float]]:
        """Hyperparameters of every member, read from the device in one transfer."""
        mutable = self.parts.config.pbt.mutable
        names = [name for name in self.vectors if name in mutable or name.startswith(SCALE)]
        if not names:
            return [{} for _ in range(self.parts.layout.policies)]
        rows = torch.stack([self.vectors[name].double() for name in names], dim=1).tolist()
        return [dict(zip(names, row, strict=True)) for row in rows]

    def apply(self, takeover: Takeover) -> None:
        """Copy weights, if the takeover does, and set the hyperparameters; all in place."""
        if takeover.copied:
            self.parts.update.copy(takeover.donor, takeover.member)
            self.parts.collector.inherit(takeover.donor, takeover.member)
        self.write([takeover.after if i == takeover.member else {} for i in range(self.parts.layout.policies)])

    def write(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Set every member's hyperparameters; those not named keep their values."""
        for member, values in enumerate(rows):
            for name, value in values.items():
                self.vectors[name][member].fill_(value)
        self._fit()

    def _fit(self) -> None:
        """Pass reward scales to the environments, and take the most passes that any member needs."""
        for name, scale in self._scales.items():
            scale.copy_(self.vectors[SCALE + name].index_select(0, self.parts.layout.policy_id))
        self.parts.update.passes = int(self.vectors["mini_epochs"].max())

    def state_dict(self) -> State:
        hyperparameters = {name: x.clone() for name, x in self.vectors.items()}
        return {"hyperparameters": hyperparameters, "evolution": self.evolution.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        for name, x in state["hyperparameters"].items():
            self.vectors[name].copy_(x)
        self.evolution.load_state_dict(state["evolution"])
        self._fit()


PBT = Algorithm(
    "pbt",
    actor_loss,
    settings=PbtTrainConfig,
    networks=lambda policies: policies,
    vectors=vectors,
    selection=Population,
    colour=3,
)
"""Each member's loss is PPO's."""

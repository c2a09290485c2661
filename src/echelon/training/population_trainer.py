"""A population in one process: the iteration of `Trainer`, and between iterations the survival of the fittest."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from echelon.algorithms import ALGORITHMS
from echelon.algorithms.pbt import Evolution, Takeover, ranked
from echelon.config import TrainConfig
from echelon.envs.contract import Env, Evolvable, State
from echelon.errors import UserError
from echelon.learning.hyperparameters import SCALE
from echelon.learning.population_update import PopulationUpdate
from echelon.learning.targets import Targets
from echelon.models.population import Population
from echelon.rollout.buffer import Rollout
from echelon.training.trainer import Iteration, Trainer


class PopulationTrainer(Trainer):
    """M networks learn side by side. Now and then the worst become copies of the best with other hyperparameters.

    What an iteration records as a CUDA graph never changes shape: takeovers write into the stacked tensors, after the
    rollout that was collected has been learned from. The environments of a member that takes over other weights go on
    where they are; its memory is cleared, the episodes in progress count for nobody, and until others have ended it has
    the scores of the member it copied.
    """

    model: Population  # pyright: ignore[reportIncompatibleVariableOverride]  # narrower, and set once
    update: PopulationUpdate  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, env: Env, config: TrainConfig) -> None:
        super().__init__(env, config)
        self.objective = env.objective if isinstance(env, Evolvable) else "return"
        self.evolution = Evolution(config.num_policies, config.pbt, config.seed)
        self.best = 0
        """The member whose objective is the highest."""
        if config.pbt.mutate_at_start:
            self._set(self.evolution.start(self.hyperparameters()))

    def _build_model(self) -> Population:
        env, config = self.env, self.config
        bf16 = config.precision == "bf16"
        return Population(env.obs_spec, env.action_dim, config.num_policies, config.model, bf16=bf16)

    def _build_update(self) -> PopulationUpdate:
        scales = self.env.reward_scales if isinstance(self.env, Evolvable) else {}
        return PopulationUpdate(self.model, ALGORITHMS["pbt"], self.plan, self.config, scales)

    def _targets(self, follower: Tensor, adversarial: Tensor | None) -> Targets:
        return self.update.targets(self.collector.rollout)

    def _measure(self, rollout: Rollout) -> None:
        """Nothing is borrowed, so how far apart the members are decides nothing."""

    def _episode_metrics(self) -> dict[str, Tensor]:
        """Of all members; the leader is the one with the highest objective."""
        episodes = self.collector.episodes
        if self.objective not in episodes.names:
            raise UserError(f"{self.objective} is the task's objective, but it reports no episode/{self.objective}")
        objective = episodes.objective(self.objective)
        best = objective.nan_to_num(nan=-math.inf).argmax(dim=0, keepdim=True)
        vectors = {"objective": objective} | {
            f"pbt/{name}": x for name, x in self.update.hyperparameters.vectors.items()
        }
        each = {f"{name}/policy_{i}": x[i] for name, x in vectors.items() for i in range(self.layout.policies)}
        leading = {"pbt/best": best[0], "lr": self.update.optimizer.rate.index_select(0, best)[0]}
        return episodes.metrics(best) | each | leading

    def iterate(self) -> Iteration:
        """One iteration, and a check of the members if an interval has passed."""
        result = super().iterate()
        objectives = [result.metrics[f"objective/policy_{i}"] for i in range(self.layout.policies)]
        self.best = ranked(objectives)[0]
        self.evolution.observe(objectives)
        steps = self.iteration * self.config.update.horizon * self.layout.follower_envs
        if self.evolution.due(steps):
            result.takeovers = self.evolution.check(steps, objectives, self.hyperparameters())
            for takeover in result.takeovers:
                self._apply(takeover)
        return result

    def score(self, metrics: Mapping[str, float]) -> float:
        """Of the best member, by what members are judged by: a return whose scale mutates ranks nothing."""
        return metrics[f"objective/policy_{self.best}"]

    def hyperparameters(self) -> list[dict[str, float]]:
        """What may mutate, of every member."""
        names = self.config.pbt.mutable
        rows = self.update.hyperparameters.read()
        return [{k: x for k, x in row.items() if k in names or k.startswith(SCALE)} for row in rows]

    def _apply(self, takeover: Takeover) -> None:
        """Copy weights, if they are, and set the hyperparameters; all in place."""
        member = takeover.member
        if takeover.copied:
            self.update.copy(takeover.donor, member)
            self.collector.inherit(takeover.donor, member)
        self._set([takeover.after if i == member else {} for i in range(self.layout.policies)])

    def _set(self, rows: list[Mapping[str, float]] | list[dict[str, float]]) -> None:
        self.update.hyperparameters.write(rows)
        self._fit_passes()

    def _fit_passes(self) -> None:
        """As many passes as the most diligent member takes; another number is another graph."""
        passes = int(max(row["mini_epochs"] for row in self.update.hyperparameters.read()))
        if passes != self.update.passes:
            self.update.passes = passes
            self._learn = self._captured(self._update)

    def state_dict(self) -> State:
        population = {
            "best": self.best,
            "hyperparameters": self.update.hyperparameters.state_dict(),
            "evolution": self.evolution.state_dict(),
        }
        return {**super().state_dict(), "population": population}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        population = state["population"]
        self.best = population["best"]
        self.update.hyperparameters.load_state_dict(population["hyperparameters"])
        self.evolution.load_state_dict(population["evolution"])
        self._fit_passes()


def make_trainer(env: Env, config: TrainConfig) -> Trainer:
    """What trains `config.algo`."""
    return PopulationTrainer(env, config) if config.algo == "pbt" else Trainer(env, config)

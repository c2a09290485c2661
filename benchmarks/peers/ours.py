"""Our update, captured as a CUDA graph on CUDA, as the trainer does it but for two parts that are not compiled here.

The trainer compiles `compute_targets`, and the value after the last step, which its collector computes. Here both run
as they are, inside the graph: our column is therefore a little slower than training.
"""

from typing import Any

import torch
from peers import problem as given
from peers.problem import Contestant, Losses, Problem
from torch import Tensor

from echelon.algorithms.ppo import PPO
from echelon.config import ModelConfig, TrainConfig, UpdateConfig
from echelon.device.capture import Captured
from echelon.learning.settings import Settings
from echelon.learning.targets import compute_targets
from echelon.learning.update import Update
from echelon.models.actor_critic import ActorCritic
from echelon.models.normaliser import EPSILON, Normaliser
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import Layout
from echelon.training.trainer import make_plan


class Ours(Contestant):
    """With a critic of its own, or with the trunk shared, our default."""

    shares = True

    def __init__(self, problem: Problem) -> None:
        sizes, device = problem.sizes, problem.device
        self.config = TrainConfig(
            algo="ppo",
            policies=1,
            num_envs=sizes.num_envs,
            model=ModelConfig(hidden=sizes.hidden),
            update=UpdateConfig(
                horizon=sizes.horizon,
                mini_epochs=sizes.epochs,
                minibatches=sizes.minibatches,
                discount=given.DISCOUNT,
                gae_lambda=given.SMOOTHING,
                clip=given.CLIP,
                critic_coef=2 * given.VALUE_COEF,
                bounds_coef=0.0,
                entropy_coef=given.ENTROPY_COEF,
                grad_norm=given.GRAD_NORM,
                learning_rate=given.RATE,
                kl_threshold=given.KL_THRESHOLD,
            ),
        )
        groups = ("policy",) if problem.shared else ("policy", "critic")
        self.model = ActorCritic(dict.fromkeys(groups, sizes.obs), sizes.actions, 1, self.config.model).to(device)
        self._load(problem)
        self.plan = make_plan(Layout(sizes.num_envs, 1, device), self.config)
        self.settings = Settings(self.config.update, self.plan.layout)
        self.learning = Update(self.model, PPO.actor_loss, self.plan, self.settings, self.config)
        self.rollout = self._store(problem, groups)
        self.generator = torch.Generator(device).manual_seed(0)
        self.drawn = self.plan.layout.draw_followers(self.generator)
        self._captured = Captured(self._learn, device, (self.generator,))
        super().__init__(self.model.parameters())

    def _load(self, problem: Problem) -> None:
        actor, critic = self.model.actor, self.model.critic or self.model.actor
        features: Any = [actor.observe, *actor.layers]
        value_features: Any = [critic.observe, *critic.layers]
        problem.load([*features, self.model.mean_head], [*value_features, self.model.value_head])
        with torch.no_grad():
            self.model.log_std.fill_(given.LOG_STD)
        for module in self.model.modules():
            if isinstance(module, Normaliser):
                module.var.fill_(1 - EPSILON)
                module.count.fill_(given.SETTLED)

    def _store(self, problem: Problem, groups: tuple[str, ...]) -> Rollout:
        sizes = problem.sizes
        spec = dict.fromkeys(groups, sizes.obs)
        rollout = Rollout.allocate(sizes.horizon, sizes.num_envs, spec, sizes.actions, 0, 1, problem.device)
        for table in rollout.obs.values():
            table.copy_(problem.obs)
        rollout.action.copy_(problem.action)
        rollout.mean.copy_(problem.mean)
        rollout.log_std.fill_(given.LOG_STD)
        rollout.log_prob.copy_(problem.log_prob)
        rollout.value[:-1].copy_(problem.value)
        rollout.reward.copy_(problem.reward)
        rollout.terminated.copy_(problem.done)
        return rollout

    def _learn(self) -> dict[str, Tensor]:
        rollout, config = self.rollout, self.config
        with torch.no_grad():  # the others value the state after the last step here; our collector has done so
            last = {name: x[-1:] for name, x in rollout.obs.items()}
            output = self.model(last, self.plan.layout.policy_id, rollout.state[-1], rollout.start[-1:])
            rollout.value[-1].copy_(self.model.raw_value(output.value[0]))
        targets = compute_targets(self.plan, rollout, self.model, self.drawn, None, self.settings, config.ensemble)
        metrics = self.learning.summary(self.learning.run(rollout, targets, self.drawn, self.generator))
        self.model.merge_observations({name: x[:-1] for name, x in rollout.obs.items()})
        return metrics

    def update(self) -> Losses:
        metrics = self._captured()
        values = torch.stack([x.float() for x in metrics.values()]).tolist()
        read = dict(zip(metrics, values, strict=True))
        return Losses(read["loss/actor"], read["loss/critic"])

    def restore(self) -> None:
        super().restore()
        self.learning.optimizer.rate.fill_(given.RATE)

"""rsl_rl's PPO."""

import math
from typing import Any

import torch
from peers import problem as given
from peers.problem import Contestant, Losses, Problem
from rsl_rl.algorithms import PPO
from rsl_rl.models import MLPModel
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict
from torch import nn


class Peer(Contestant):
    """`compute_returns` and `update` as its runner calls them. It normalises observations and no values."""

    compiles = True

    def __init__(self, problem: Problem, *, compiled: bool = False) -> None:
        sizes, device = problem.sizes, str(problem.device)
        first, self.last = (TensorDict({"policy": x}, [sizes.num_envs]) for x in (problem.obs[0], problem.obs[-1]))
        groups = {"actor": ["policy"], "critic": ["policy"]}
        net = {"hidden_dims": list(sizes.hidden), "activation": "elu", "obs_normalization": True}
        gaussian = {"class_name": "GaussianDistribution", "init_std": math.exp(given.LOG_STD), "std_type": "log"}
        actor = MLPModel(first, groups, "actor", sizes.actions, distribution_cfg=gaussian, **net)
        critic = MLPModel(first, groups, "critic", 1, **net)
        problem.load(*([layer for layer in model.mlp if isinstance(layer, nn.Linear)] for model in (actor, critic)))
        for model in (actor, critic):
            _settle(model.obs_normalizer)
        storage = RolloutStorage("rl", sizes.num_envs, sizes.horizon, first, [sizes.actions], device)
        self.algorithm = PPO(
            actor,
            critic,
            storage,
            num_learning_epochs=sizes.epochs,
            num_mini_batches=sizes.minibatches,
            clip_param=given.CLIP,
            gamma=given.DISCOUNT,
            lam=given.SMOOTHING,
            value_loss_coef=given.VALUE_COEF,
            entropy_coef=given.ENTROPY_COEF,
            learning_rate=given.RATE,
            max_grad_norm=given.GRAD_NORM,
            desired_kl=given.KL_THRESHOLD,
            device=device,
        )
        self.algorithm.train_mode()
        _store(storage, problem)
        super().__init__([*actor.parameters(), *critic.parameters()])
        if compiled:
            self.algorithm.compile("default")

    def update(self) -> Losses:
        with torch.inference_mode():
            self.algorithm.compute_returns(self.last)
        means = self.algorithm.update()
        return Losses(means["surrogate"], means["value"])

    def restore(self) -> None:
        super().restore()
        self.algorithm.learning_rate = given.RATE


def _settle(normaliser: Any) -> None:
    """It divides by the deviation plus epsilon."""
    deviation = 1 - normaliser.eps
    normaliser._std.fill_(deviation)
    normaliser._var.fill_(deviation**2)
    normaliser.count.fill_(int(given.SETTLED))


def _store(storage: RolloutStorage, problem: Problem) -> None:
    storage.observations["policy"].copy_(problem.obs[:-1])
    storage.actions.copy_(problem.action)
    storage.distribution_params = (problem.mean, torch.full_like(problem.mean, given.LOG_STD).exp())
    for table, x in (
        (storage.rewards, problem.reward),
        (storage.dones, problem.done),
        (storage.values, problem.value),
        (storage.actions_log_prob, problem.log_prob),
    ):
        table.copy_(x.unsqueeze(-1))

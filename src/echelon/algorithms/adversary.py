"""The adversarial reward: a discriminator guesses which policy acted, and followers are paid for being recognisable.

Section 5.2 of the CPO paper, with the labels it describes: `policy_id` travels beside the rows. Followers receive
λ_adv·log D(y|s,a); the leader receives zero.
"""

import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn

from echelon.algorithms import CpoTrainConfig
from echelon.device.capture import Source, draw
from echelon.device.fusion import fused
from echelon.envs.contract import State
from echelon.learning.optimizer import Adam
from echelon.models.actor_critic import ActorCritic
from echelon.models.linear import Linear, stack
from echelon.models.trunk import dense
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import LEADER, Layout


class Adversary:
    """A discriminator for each network, and its optimizer: fixed rate, one pass over each rollout, after scoring it."""

    def __init__(self, obs_dim: int, action_dim: int, layout: Layout, config: CpoTrainConfig) -> None:
        self.layout, self.coef = layout, config.adversary.coef
        self.minibatches = max(1, math.floor(config.update.horizon / config.update.minibatch_envs))
        widths = (obs_dim + action_dim, *config.adversary.hidden, layout.each)
        self.network, *others = (
            nn.ModuleList(Linear(narrow, wide) for narrow, wide in itertools.pairwise(widths))
            for _ in range(layout.networks)
        )
        stack(self.network, others)
        self.network.to(layout.device)
        self.optimizer = Adam(self.network.parameters(), config.update.learning_rate, ranks=layout.ranks)
        self._score = fused(self._log_likelihood, layout.device, enabled=config.fuse)
        self._train = fused(self._guess, layout.device, enabled=config.fuse)

    def __call__(self, rollout: Rollout, model: ActorCritic, generator: Source) -> tuple[Tensor, dict[str, Tensor]]:
        """The followers' extra reward `[T, N]`, scored before the discriminator learns from the same rows."""
        inputs = self.inputs(rollout, model)
        reward = self.reward(inputs)
        metrics = self.learn(inputs, generator)
        leaders = self.layout.networks * self.layout.sizes[LEADER]  # environments whose reward is zero
        share = self.layout.num_envs / (self.layout.num_envs - leaders)
        mean = reward.unflatten(1, (self.layout.networks, -1)).mean((0, 2))
        return reward, metrics | {"adversary/reward": mean * share}

    def inputs(self, rollout: Rollout, model: ActorCritic) -> Tensor:
        """Normalised observation and raw action `[T, N, D+A]`."""
        return torch.cat((model.obs_norm["policy"](rollout.obs["policy"][:-1]), rollout.action), dim=-1)

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits of the discriminators for rows `[T, G·n, D+A]`: `[T, G·n, K]`."""
        *layers, head = (layer for layer in self.network if isinstance(layer, Linear))
        for layer in layers:
            inputs = dense(inputs, layer.weight, layer.bias)
        return head(inputs)

    @property
    def labels(self) -> Tensor:
        """The policy that acts in each environment `[N]`, counted within its network."""
        return self.layout.policy_id % self.layout.each

    @torch.no_grad()
    def reward(self, inputs: Tensor) -> Tensor:
        """λ_adv·log D(y|s,a) on followers' rows, zero on the leader's: `[T, N]`."""
        return torch.where(self.labels == LEADER, 0.0, self.coef * self._score(inputs))

    def _log_likelihood(self, inputs: Tensor) -> Tensor:
        """log D(y|s,a) of each row `[T, N]`."""
        labels = self.labels.expand(inputs.shape[:2])[..., None]
        return nn.functional.log_softmax(self.logits(inputs), dim=-1).gather(2, labels).squeeze(2)

    def learn(self, inputs: Tensor, generator: Source) -> dict[str, Tensor]:
        """One shuffled pass of cross-entropy on logits; metrics `[G]`."""
        networks = self.layout.networks
        rows = inputs.unflatten(1, (networks, -1)).transpose(0, 1).flatten(1, 2)  # [G, T·n, D+A]
        labels = self.labels.unflatten(0, (networks, -1)).repeat(1, inputs.shape[0])

        def sample(one: torch.Generator, count: int) -> Tensor:
            return torch.rand((count, labels.shape[1]), generator=one, device=labels.device)

        order = draw(generator, networks, sample).argsort(dim=1)
        size = labels.shape[1] // self.minibatches
        losses, hits = [], []
        for chosen in order[:, : size * self.minibatches].chunk(self.minibatches, dim=1):
            loss, hit = self._train(rows, labels, chosen)
            self.optimizer.step(loss.sum())
            losses.append(loss.detach())
            hits.append(hit)
        return {"adversary/loss": torch.stack(losses).mean(0), "adversary/accuracy": torch.stack(hits).mean(0)}

    def _guess(self, rows: Tensor, labels: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy on some rows `[G, n]` of each network, and the share of them that is recognised: `[G]`."""
        networks, truth = len(labels), labels.gather(1, chosen)
        first = torch.arange(networks, device=rows.device)[:, None] * rows.shape[1]
        inputs = rows.flatten(0, 1).index_select(0, (first + chosen).flatten())
        logits, truth = self.logits(inputs[None])[0], truth.flatten()
        hit = (logits.detach().argmax(-1) == truth).float()
        loss = nn.functional.cross_entropy(logits, truth, reduction="none")
        return loss.view(networks, -1).mean(1), hit.view(networks, -1).mean(1)

    def state_dict(self) -> State:
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])

"""The adversarial reward: a discriminator guesses which policy acted, and followers are paid for being recognisable.

Section 5.2 of the CPO paper, with the labels it describes: `policy_id` travels beside the rows. Followers receive
λ_adv·log D(y|s,a); the leader receives exactly nothing.
"""

import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from echelon.config import TrainConfig
from echelon.device.fusion import fused
from echelon.envs.contract import State
from echelon.learning.optimizer import Adam
from echelon.models.actor_critic import ActorCritic
from echelon.models.spread import dense
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import LEADER, Layout


class Adversary:
    """Discriminator and its optimizer: fixed rate, one pass over each rollout, after that rollout was scored."""

    def __init__(self, obs_dim: int, action_dim: int, layout: Layout, config: TrainConfig) -> None:
        self.layout, self.coef = layout, config.adversary.coef
        self.minibatches = max(1, math.floor(config.update.horizon / config.update.minibatch_envs))
        widths = (obs_dim + action_dim, *config.adversary.hidden)
        layers: list[nn.Module] = []
        for narrow, wide in itertools.pairwise(widths):
            layers += [nn.Linear(narrow, wide), nn.ELU()]
        self.network = nn.Sequential(*layers, nn.Linear(widths[-1], layout.policies)).to(layout.policy_id.device)
        self.optimizer = Adam(self.network.parameters(), config.update.learning_rate)
        self._score = fused(self._log_likelihood, layout.policy_id.device, enabled=config.fuse)
        self._grade = fused(self._guess, layout.policy_id.device, enabled=config.fuse)

    def inputs(self, rollout: Rollout, model: ActorCritic) -> Tensor:
        """Normalised observation and raw action `[T·N, D+A]`, time first."""
        obs = model.obs_norm["policy"](rollout.obs["policy"][:-1])
        return torch.cat((obs, rollout.action), dim=-1).flatten(0, 1)

    def logits(self, inputs: Tensor) -> Tensor:
        """What the discriminator thinks of each row, `[B, D+A] -> [B, M]`: `network`, with the kernels of a trunk."""
        *layers, head = ((layer.weight, layer.bias) for layer in self.network if isinstance(layer, nn.Linear))
        features = inputs[None]
        for weight, bias in layers:
            features = dense(features, weight, bias)
        return linear(features[0], *head)

    def labels(self, rollout: Rollout) -> Tensor:
        """The policy that acted `[T·N]`, time first as the rows are."""
        return self.layout.policy_id.repeat(rollout.horizon)

    @torch.no_grad()
    def reward(self, rollout: Rollout, inputs: Tensor) -> Tensor:
        """λ_adv·log D(y|s,a) on followers' rows, zero on the leader's: `[T, N]`."""
        labels = self.labels(rollout)
        return torch.where(labels == LEADER, 0.0, self.coef * self._score(inputs, labels)).view(rollout.horizon, -1)

    def _log_likelihood(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """log D(y|s,a) of each row."""
        return nn.functional.log_softmax(self.logits(inputs), dim=-1).gather(1, labels[:, None]).squeeze(1)

    def learn(self, rollout: Rollout, inputs: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """One shuffled pass of cross-entropy on logits."""
        labels = self.labels(rollout)
        order = torch.randperm(len(labels), generator=generator, device=labels.device)
        size = len(labels) // self.minibatches
        losses, hits = [], []
        for k in range(self.minibatches):
            rows = order[k * size : (k + 1) * size]
            loss, hit = self._grade(inputs, labels, rows)
            self.optimizer.step(loss)
            losses.append(loss.detach())
            hits.append(hit)
        return {"adversary/loss": torch.stack(losses).mean(), "adversary/accuracy": torch.stack(hits).mean()}

    def _guess(self, inputs: Tensor, labels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy on some rows, and the share of them that is recognised."""
        logits, truth = self.logits(inputs[rows]), labels[rows]
        hit = (logits.detach().argmax(-1) == truth).float().mean()
        return nn.functional.cross_entropy(logits, truth), hit

    def state_dict(self) -> State:
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])

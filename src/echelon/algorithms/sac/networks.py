"""A Gaussian actor squashed by tanh, whose sigma depends on the state, and two critics Q(s, a) over bins."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from echelon.algorithms import SacConfig, SacTrainConfig
from echelon.algorithms.sac import losses
from echelon.envs.contract import Groups, Size
from echelon.errors import UserError
from echelon.models.actor_critic import Networks, Output
from echelon.models.linear import Linear, stack
from echelon.models.normaliser import Normaliser
from echelon.models.trunk import LayerNorm

LOWEST, HIGHEST = -5.0, 0.5
"""Limits of log sigma. A squashed Gaussian is widest at a sigma near 0.9."""
EXPANSION = 4
"""Width inside a residual block, in widths of the critic."""
SMEAR = 0.75
"""Standard deviation of HL-Gauss, in widths of a bin."""


@dataclass
class Squashed(Output):
    """`mean` and `log_std` `[L, B, A]` are those of the Gaussian before tanh."""

    @property
    def mode(self) -> Tensor:
        return self.mean.tanh()

    def sample(self, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        return losses.sample(self.mean, self.log_std, noise)


class SquashedActor(nn.Module):
    """Layers with normalisation and SiLU; starts near a mean of 0 and a sigma of 1 everywhere."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], actions: int) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(Linear(a, b) for a, b in pairwise((inputs, *hidden)))
        self.norms: Any = nn.ModuleList(LayerNorm(width) for width in hidden)
        self.head = Linear(hidden[-1], 2 * actions)
        with torch.no_grad():
            self.head.weight.mul_(0.01)
            self.head.bias.zero_()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised observations `[..., D]` to mean and log sigma `[..., A]`."""
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = silu(norm(layer(x)))
        mean, log_std = self.head(x).to(self.head.weight.dtype).chunk(2, -1)
        return mean, log_std.clamp(LOWEST, HIGHEST)


class Critics(nn.Module):
    """A residual network, or several stacked: then every tensor is `[number, ...]`."""

    def __init__(self, inputs: int, config: SacConfig) -> None:
        super().__init__()
        width, blocks = config.critic_width, config.critic_blocks
        assert width is not None
        assert blocks is not None
        self.first = Linear(inputs, width)
        self.norms = nn.ModuleList(LayerNorm(width) for _ in range(blocks + 1))
        self.up = nn.ModuleList(Linear(width, EXPANSION * width) for _ in range(blocks))
        self.down = nn.ModuleList(Linear(EXPANSION * width, width) for _ in range(blocks))
        self.last = Linear(width, config.bins)
        with torch.no_grad():  # near 0 everywhere: a narrow bell over the bins
            self.last.weight.mul_(0.1)
            centres = torch.linspace(-config.reach, config.reach, config.bins)
            self.last.bias.copy_(-2 * centres.square()[None])

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Logits `[number, B, K]` of rows `[B, D]`, `[B, A]`."""
        number = len(self.first.weight)
        x = self.first(torch.cat((obs, action), -1).repeat(number, 1)[None])
        for norm, up, down in zip(self.norms, self.up, self.down, strict=False):
            x = x + down(silu(up(norm(x))))
        logits = self.last(self.norms[-1](x))
        return logits.to(self.last.weight.dtype).view(number, len(obs), -1)


class SacNetworks(Networks):
    """Actor, critics, their targets, the temperature, and statistics of observations and of returns.

    The critics see the group `critic` if there is one. Only observed returns set the scale of rewards: a scale that
    followed the critics would be moved by what it moves.
    """

    def __init__(
        self, obs_spec: Mapping[str, Size], action_dim: int, config: SacTrainConfig, *, bf16: bool = False
    ) -> None:
        super().__init__()
        if not all(isinstance(size, int) for size in obs_spec.values()):
            raise UserError("sac sees numbers only, and this environment shows images; --algo ppo learns from them")
        sac = config.sac.sized(config.num_envs)
        self.policies = self.networks = 1
        self.state_dim, self.encoder, self.activation = 0, None, "silu"
        self.squashed, self.bf16, self.reach = True, bf16, sac.reach
        sizes = {name: size for name, size in obs_spec.items() if isinstance(size, int)}
        self.obs_norm = nn.ModuleDict({name: Normaliser(size, config.model.obs_clip) for name, size in sizes.items()})
        self.critic_group = "critic" if "critic" in sizes else "policy"
        self.actor = SquashedActor(sizes["policy"], sac.hidden, action_dim)
        self.critics, other = (Critics(sizes[self.critic_group] + action_dim, sac) for _ in range(2))
        stack(self.critics, [other])
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.full((1, 1), math.log(sac.temperature)))
        self.return_norm = Normaliser(1)
        """Of discounted returns so far, as they were observed."""
        self.largest = nn.Buffer(torch.zeros(1, 1))
        """Largest magnitude of them, but for outliers."""
        width = 2 * sac.reach / (sac.bins - 1)
        self.sigma = SMEAR * width
        self.centres = nn.Buffer(torch.linspace(-sac.reach, sac.reach, sac.bins), persistent=False)
        edges = torch.linspace(-sac.reach - width / 2, sac.reach + width / 2, sac.bins + 1)
        self.edges = nn.Buffer(edges, persistent=False)

    def forward(self, obs: Groups, policy_id: Tensor, state: Tensor, start: Tensor) -> Squashed:
        """As of every network, from raw observations `[L, B, D]`; it has no value of a state."""
        mean, log_std = self.act(self.obs_norm["policy"](obs["policy"]))
        return Squashed(mean, log_std, mean.new_zeros(mean.shape[:-1]), state)

    def act(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log sigma of normalised observations."""
        with self.products(obs.device):
            return self.actor(obs)

    def logits(self, critics: Critics, obs: Tensor, action: Tensor) -> Tensor:
        """Both critics' logits `[2, B, K]`, in products of the run's precision."""
        with self.products(obs.device):
            return critics(obs, action)

    def value(self, critics: Critics, obs: Tensor, action: Tensor) -> Tensor:
        """Both critics' values `[2, B]`, in units of scaled returns."""
        return losses.expectation(self.logits(critics, obs, action), self.centres)

    def labels(self, value: Tensor) -> Tensor:
        """Values `[B]` as bins `[B, K]`."""
        return losses.project(value, self.edges, self.sigma)

    @property
    def scale(self) -> Tensor:
        """What rewards are divided by, `[1, 1]`: returns get a deviation of at most 1, and fit into the bins."""
        std = self.return_norm.std.to(self.largest.dtype)
        return torch.maximum(std, self.largest / self.reach).clamp(min=1e-6)

    def only(self, network: int) -> Self:
        """A copy; there is only one."""
        return copy.deepcopy(self)

    def weights(self, policy: int) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        names = ["first", *(f"layer_{number}" for number in range(len(self.actor.layers) - 1))]
        for name, layer, norm in zip(names, self.actor.layers, self.actor.norms, strict=True):
            found |= {f"{name}_weight": layer.weight[0], f"{name}_bias": layer.bias[0]}
            found |= {f"{name}_norm_weight": norm.weight[0], f"{name}_norm_bias": norm.bias[0]}
        mean, bias = self.actor.head.weight[0].chunk(2)[0], self.actor.head.bias[0].chunk(2)[0]
        return found | {"mean_weight": mean, "mean_bias": bias}

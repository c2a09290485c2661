"""What acting, evaluating and exporting need of networks, whichever algorithm they belong to."""

import copy
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from echelon.envs.contract import Groups
from echelon.models import gaussian
from echelon.models.normaliser import Normaliser
from echelon.ranks import ALONE, Ranks


@dataclass
class Output:
    """Output of the networks for L steps of B sequences."""

    mean: Tensor
    """`[L, B, A]`"""
    log_std: Tensor
    """`[B, A]`, or `[1, A]` with one policy"""
    value: Tensor
    """`[L, B]` in the units of the value normaliser"""
    state: Tensor
    """`[B, S]` after the last step"""

    def detached(self) -> "Output":
        """The same numbers without gradient."""
        return Output(self.mean.detach(), self.log_std.detach(), self.value.detach(), self.state.detach())

    def log_prob(self, action: Tensor) -> Tensor:
        """log π(action) `[L, B]`."""
        return gaussian.log_prob(action, self.mean, self.log_std)

    @property
    def mode(self) -> Tensor:
        """The action without noise `[L, B, A]`."""
        return self.mean

    def sample(self, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """The action `noise` standard deviations from the mean `[L, B, A]`, at the mean without it, and its log π."""
        action = self.mean if noise is None else self.mean + self.log_std.exp() * noise
        return action, self.log_prob(action)


class Networks(nn.Module):
    """G networks of K policies each, M = G·K in all: every parameter and statistic has a leading dimension G."""

    policies: int
    networks: int
    state_dim: int
    """Width of the recurrent state; 0 without one."""
    obs_norm: nn.ModuleDict
    """Normalisers of observation groups that are numbers."""
    encoder: nn.Module | None
    """What observations pass before the first layer."""
    activation: str
    squashed: bool = False
    """Whether actions pass through tanh."""
    bf16: bool = False

    def raw_value(self, value: Tensor) -> Tensor:
        """Values `[..., B]` in the units of (scaled) rewards."""
        return value

    def weights(self, policy: int) -> dict[str, Tensor]:
        """Weights of a policy of the first network, from normalised observations to its mean, as a file has them."""
        raise NotImplementedError

    def only(self, network: int) -> Self:
        """A copy of one of the networks."""
        alone = copy.deepcopy(self)
        alone.policies, alone.networks = self.policies // self.networks, 1
        for x in (*alone.parameters(), *alone.buffers()):
            x.data = x.data[network : network + 1].clone()
        return alone

    def merge_observations(self, obs: Groups, ranks: Ranks = ALONE) -> Tensor:
        """Take observations `[T, N, D]` that all ranks collected into the normalisers; returns `[G]`, how many of this
        rank's were too far away to count in full. Only between iterations: see `trainer.py`."""
        far = torch.zeros(self.networks, device=next(self.parameters()).device)
        for name, normaliser in self.obs_norm.items():
            assert isinstance(normaliser, Normaliser)
            limited, beyond = normaliser.limited(obs[name])
            normaliser.merge(limited, ranks)
            far += beyond
        return far

    def products(self, device: torch.device) -> AbstractContextManager[object]:
        """Context of matrix products: bfloat16 autocast, if `bf16`; without its cache, which CUDA graphs outlive."""
        if not self.bf16:
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)

"""G stacked networks of K policies each: a Gaussian actor and a value head on a shared, conditioned trunk."""

import copy
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from echelon.config import ModelConfig
from echelon.envs.contract import TARGET, Groups, Size
from echelon.models import gaussian
from echelon.models.encoder import make_encoder, scaled
from echelon.models.linear import Linear, linear, lookup, stack
from echelon.models.normaliser import Normaliser
from echelon.models.sharing import Sharing
from echelon.models.trunk import Trunk
from echelon.ranks import ALONE, Ranks

HEAD_ALIGNMENT = 4
"""The fused head is padded to a multiple of 4 columns: CUDA GEMMs want rows of 16 bytes."""


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
    obs_norm: Any
    """`Normaliser` of each observation group that is numbers, by name."""
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
            limited, beyond = normaliser.limited(obs[name])
            normaliser.merge(limited, ranks)
            far += beyond
        return far

    def products(self, device: torch.device) -> AbstractContextManager[object]:
        """Context of matrix products: bfloat16 autocast, if `bf16`; without its cache, which CUDA graphs outlive."""
        if not self.bf16:
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


@dataclass
class Projected:
    """Observation part of the first layer, `[L, n, W]`; `critic` only where the value function has its own trunk."""

    actor: Tensor
    critic: Tensor | None
    sharing: Sharing | None = None
    """How these n units are laid out for B evaluations; None where they are the same."""


class ActorCritic(Networks):
    """G networks with K policies each, M = G·K in all: an ensemble is one network, a population has a policy in each.

    Policies of a network share every layer and differ by a learned vector φ and a free log sigma each. Actor and critic
    share the trunk, hence the value is conditioned on the policy too. When the environment offers `critic`
    observations, the critic gets a trunk of its own on those. Images, and observations for a user's own network, are
    encoded before the actor's trunk (`encoder.py`). Networks share nothing: every parameter and statistic
    has a leading dimension G, and rows of data lie network by network.

    The recurrent state is one `[N, S]` tensor (hidden and cell of each trunk side by side), of width 0 without an LSTM,
    so callers need no special case.

    With `bf16`, trunks compute in bfloat16 from weights that stay float32. Normalisers, heads, log sigma and the
    recurrent state are always float32, as is all that is computed from them.
    """

    def __init__(
        self,
        obs_spec: Mapping[str, Size],
        action_dim: int,
        policies: int,
        config: ModelConfig,
        *,
        networks: int = 1,
        bf16: bool = False,
    ) -> None:
        """`policies` is M, of all `networks` together."""
        super().__init__()
        self.bf16, self.policies, self.networks = bf16, policies, networks
        each = policies // networks
        phi_dim = config.phi_dim if each > 1 else 0
        self.phi = nn.Parameter(torch.randn(1, each, phi_dim)) if phi_dim else None
        self.log_sigma = nn.Parameter(torch.full((1, each, action_dim), math.log(config.initial_sigma)))
        numbers = {name: size for name, size in obs_spec.items() if isinstance(size, int) and name != TARGET}
        self.obs_norm = nn.ModuleDict({name: Normaliser(width, config.obs_clip) for name, width in numbers.items()})
        self.value_norm = Normaliser(1)
        self.max_sigma, self.activation = config.max_sigma, config.activation
        self.encoder = make_encoder(obs_spec, config)
        width = numbers["policy"] if self.encoder is None else self.encoder.features
        self.actor = Trunk(width, phi_dim, config.lstm, config.hidden, config.activation)
        self.critic = None
        if "critic" in numbers:
            self.critic = Trunk(numbers["critic"], phi_dim, config.lstm, config.hidden, config.activation)
        self.mean_head = Linear(self.actor.feature_dim, action_dim)
        self.value_head = Linear(self.actor.feature_dim, 1)
        for head in (self.mean_head, self.value_head):
            nn.init.zeros_(head.bias)
        self.state_dim = self.actor.state_dim + (self.critic.state_dim if self.critic else 0)
        if networks > 1:
            stack(self, [ActorCritic(obs_spec, action_dim, each, config) for _ in range(1, networks)])

    @property
    def log_std(self) -> Tensor:
        """`[M, A]`"""
        return self.log_sigma.flatten(0, 1)

    def bound_sigma(self) -> None:
        """Clamp sigma to `max_sigma` after every optimizer step: an entropy bonus would raise it without end."""
        if self.max_sigma is not None:
            self.log_sigma.data.clamp_(max=math.log(self.max_sigma))

    def weights(self, policy: int) -> dict[str, Tensor]:
        """φ only shifts the first layer, so it is added to its bias."""
        trunk, bias = self.actor, self.actor.observe.bias[0]
        if trunk.lstm:
            bias = bias + trunk.recur.bias[0]
        if trunk.condition is not None and self.phi is not None:
            bias = bias + trunk.condition.weight[0] @ self.phi[0, policy]
        found = {"first_weight": trunk.observe.weight[0], "first_bias": bias}
        if trunk.lstm:
            found["recur_weight"] = trunk.recur.weight[0]
            found["norm_weight"], found["norm_bias"] = trunk.norm.weight[0], trunk.norm.bias[0]
        for number, layer in enumerate(trunk.layers):
            found[f"layer_{number}_weight"], found[f"layer_{number}_bias"] = layer.weight[0], layer.bias[0]
        return found | {"mean_weight": self.mean_head.weight[0], "mean_bias": self.mean_head.bias[0]}

    @torch.no_grad()
    def copy(self, donor: int, network: int) -> None:
        """Overwrite a network with the donor's weights and statistics, in place."""
        for x in (*self.parameters(), *self.buffers()):
            x[network].copy_(x[donor])

    def project(self, obs: Groups) -> Projected:
        """Compute the part of the first layers that all policies share: raw observations `[L, n, D]` to `[L, n, W]`."""
        with self.products(self.log_sigma.device):
            actor = self.actor.project(self._seen(obs))
            critic = self.critic.project(self.obs_norm["critic"](obs["critic"])) if self.critic else None
        return Projected(actor, critic)

    def _seen(self, obs: Groups) -> Tensor:
        """Input of the actor's trunk `[L, n, V]`: normalised observations, or the encoder's output."""
        if self.encoder is None:
            return self.obs_norm["policy"](obs["policy"])
        seen = {"policy": self.obs_norm["policy"](obs["policy"])} if "policy" in obs else {}
        if "image" in obs:
            seen["image"] = scaled(obs["image"], self.log_sigma.dtype)
        return self.encoder(seen)

    def evaluate(self, projected: Projected, policy_id: Tensor, state: Tensor, start: Tensor) -> Output:
        """Run L steps of B sequences under the given policies, an equal number per network.

        policy_id `[B]`, network by network; state `[B, S]` before the first step; start `[L, B]` bool, where an episode
        begins.
        """
        sharing = projected.sharing
        actor_state, critic_state = state.split((self.actor.state_dim, state.shape[-1] - self.actor.state_dim), dim=-1)
        with self.products(state.device):
            features, actor_state = self.actor(projected.actor, self.phi, policy_id, actor_state, start, sharing)
            value_features = features
            if self.critic is not None and projected.critic is not None:
                value_features, critic_state = self.critic(
                    projected.critic, self.phi, policy_id, critic_state, start, sharing
                )
        kind = self.log_sigma.dtype
        mean, value = self._heads(features.to(kind), None if self.critic is None else value_features.to(kind))
        return Output(
            mean=mean,
            log_std=self._log_std_of(policy_id),
            value=value,
            state=torch.cat((actor_state, critic_state), dim=-1).to(kind),
        )

    def _log_std_of(self, policy_id: Tensor) -> Tensor:
        """`[B, A]`, or `[1, A]` with one policy."""
        rows = len(policy_id) // self.networks
        if self.networks > 1 and self.log_sigma.shape[1] == 1:  # one row per network: nothing to look up
            return self.log_sigma.expand(-1, rows, -1).flatten(0, 1)
        return lookup(self.log_std, policy_id)

    def _heads(self, features: Tensor, value_features: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean `[L, B, A]` and value `[L, B]`: one product where both heads look at the same features."""
        if value_features is not None:
            return self.mean_head(features), self.value_head(value_features).squeeze(-1)
        actions = self.mean_head.out_features
        weight = torch.cat((self.mean_head.weight, self.value_head.weight), dim=1)
        bias = torch.cat((self.mean_head.bias, self.value_head.bias), dim=1)
        if features.is_cuda:
            padding = -(actions + 1) % HEAD_ALIGNMENT
            weight, bias = pad(weight, (0, 0, 0, padding)), pad(bias, (0, padding))
        both = linear(features, weight, bias)
        return both[..., :actions], both[..., actions]

    def forward(self, obs: Groups, policy_id: Tensor, state: Tensor, start: Tensor) -> Output:
        """`evaluate` from raw observations `[L, B, D]`."""
        return self.evaluate(self.project(obs), policy_id, state, start)

    def raw_value(self, value: Tensor) -> Tensor:
        """Values `[..., B]` in the units of (scaled) rewards, from the networks' normalised ones."""
        return self.value_norm.denormalise(value[..., None])[..., 0]

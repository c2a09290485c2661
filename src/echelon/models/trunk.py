"""From an observation and a policy vector to features: ELU layers, or an LSTM before them."""

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, layer_norm, relu, silu

from echelon.models.linear import Linear, linear, lookup, product
from echelon.models.lstm import unroll
from echelon.models.sharing import Sharing

ACTIVATIONS = {"elu": elu, "relu": relu, "silu": silu, "tanh": torch.tanh}
KERNEL_TYPES = (torch.float32, torch.bfloat16)
"""Types the kernels support; they sum in float32."""


class Trunk(nn.Module):
    """The first layer is split, W·[x; φ] = W_x·x + W_φ·φ.

    `project` computes the observation part, once for all policies that read the same row; `forward` adds the policy
    part. With an LSTM, the split layer is its input product, taken for all time steps at once.
    """

    def __init__(self, obs_dim: int, phi_dim: int, lstm: int, hidden: tuple[int, ...], activation: str = "elu") -> None:
        super().__init__()
        self.lstm, self.activation = lstm, activation
        widths = list(hidden)
        self.observe = Linear(obs_dim, 4 * lstm if lstm else widths.pop(0))
        self.condition = Linear(phi_dim, self.observe.out_features, bias=False) if phi_dim else None
        feature_dim = lstm or self.observe.out_features
        if lstm:
            self.recur = Linear(lstm, 4 * lstm)
            self.norm = LayerNorm(lstm)
        widths = [feature_dim, *widths]
        self.layers: Any = nn.ModuleList(Linear(*pair) for pair in pairwise(widths))
        self.feature_dim, self.state_dim = widths[-1], 2 * lstm
        self._initialise(obs_dim + phi_dim)

    def _initialise(self, fan_in: int) -> None:
        """Uniform ±1/√fan_in for weights, zero biases; an LSTM's own tensors uniform ±1/√units, biases included."""
        for layer in self.layers:
            nn.init.zeros_(layer.bias)
        first = [self.observe.weight, *([] if self.condition is None else [self.condition.weight])]
        if self.lstm:
            first += [self.observe.bias, self.recur.weight, self.recur.bias]
        else:
            nn.init.zeros_(self.observe.bias)
        bound = 1 / math.sqrt(self.lstm or fan_in)
        for tensor in first:
            nn.init.uniform_(tensor, -bound, bound)

    def project(self, obs: Tensor) -> Tensor:
        """Observation part of the first layer: `[L, n, D] -> [L, n, W]`. A policy part, if any, adds the bias.

        Without one there is nothing to share, and `forward` computes an ELU layer as a whole.
        """
        if self._is_whole:
            return obs
        return linear(obs, self.observe.weight, None if self.condition is not None else self._first_bias())

    @property
    def _is_whole(self) -> bool:
        return self.condition is None and not self.lstm

    def _first_bias(self) -> Tensor:
        """Bias of the split layer. An LSTM's recurrent bias adds to the same gates, so it is included."""
        return self.observe.bias + self.recur.bias if self.lstm else self.observe.bias

    def forward(
        self,
        projected: Tensor,
        phi: Tensor | None,
        policy_id: Tensor,
        state: Tensor,
        start: Tensor,
        sharing: Sharing | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Features `[L, B, F]` and the state after the last step `[B, S]`.

        projected: what `project` made, which `sharing` lays out for B evaluations, or n = B without it; phi
        `[G, K, P]`, policy_id `[B]`, state `[B, S]` before the first step, start `[L, B]` bool: an episode begins at
        this row, so memory is cleared before it.
        """
        cond = None
        if self.condition is not None:
            assert phi is not None
            # Networks lie side by side in rows: a "step" of theirs is all their policies.
            policies = phi.flatten(0, 1)[None]
            cond = linear(policies, self.condition.weight, self._first_bias())[0]
        if self._is_whole:
            features = dense(projected, self.observe.weight, self.observe.bias, self.activation)
        else:
            by_kernel = self.activation == "elu"
            features = spread(projected, cond, policy_id, sharing, activate=by_kernel and not self.lstm)
            if not by_kernel and not self.lstm:
                features = ACTIVATIONS[self.activation](features)
        if self.lstm:
            features, state = unroll(features, state, start, self.recur.weight)
            features = self.norm(features)
        for layer in self.layers:
            features = dense(features, layer.weight, layer.bias, self.activation)
        return features, state


class LayerNorm(nn.Module):
    """Over the last dimension, with a scale and shift `[G, W]` for each network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(1, width)), nn.Parameter(torch.zeros(1, width))

    def forward(self, x: Tensor) -> Tensor:
        """`[L, G·n, W]`"""
        networks, width = self.weight.shape
        if networks == 1:
            return layer_norm(x, (width,), self.weight.squeeze(0), self.bias.squeeze(0))
        rows = layer_norm(x, (width,)).unflatten(1, (networks, -1))
        return (rows * self.weight[:, None] + self.bias[:, None]).flatten(1, 2)


def spread(
    projected: Tensor, cond: Tensor | None, policy_id: Tensor, sharing: Sharing | None, *, activate: bool
) -> Tensor:
    """`share(projected) + cond[policy_id]`, through ELU if `activate`: `[L, n, W]` to `[L, B, W]`.

    cond `[M, W]`, a row per policy; policy_id `[B]`. Without a `sharing`, units are evaluations. What is compiled for
    CUDA takes one kernel each way (`spread_kernel.py`), which reads the policies off the sharing instead.
    """
    if sharing is not None and cond is not None and _has_kernel(projected):
        from echelon.models.spread_kernel import spread_in_one  # imports Triton, which not every machine has

        return spread_in_one(projected, cond, sharing, activate)
    x = projected if sharing is None else sharing.share(projected)
    if cond is not None:
        x = x + lookup(cond, policy_id)
    return elu(x) if activate else x


def dense(x: Tensor, weight: Tensor, bias: Tensor, activation: str = "elu") -> Tensor:
    """A layer of G networks, `elu(x·Wᵀ + b)`: `[L, G·n, V]` to `[L, G·n, W]`.

    Compiled for CUDA it takes the kernels of `spread`: the backward one adds up the bias's gradient on its way. Other
    activations have no kernel here.
    """
    if activation != "elu":
        return ACTIVATIONS[activation](linear(x, weight, bias))
    if _has_kernel(x):
        from echelon.models.spread_kernel import activate_in_one

        if torch.is_autocast_enabled(x.device.type):  # autocast does not reach into `product`
            return activate_in_one(linear(x, weight), bias)
        return activate_in_one(product(x, weight), bias)
    return elu(linear(x, weight, bias), inplace=True)


def _has_kernel(x: Tensor) -> bool:
    """True when compiling for CUDA, which needs Triton anyway."""
    return torch.compiler.is_compiling() and x.is_cuda and x.dtype in KERNEL_TYPES

"""The conditioned actor-critic on a single row (sheet §1.2, §1.3), and the value normaliser's arithmetic (§1.5)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

State = tuple[Tensor, Tensor] | None
"""The LSTM's (h, c), each [h]; None in an MLP."""


class Output(NamedTuple):
    """What the network says about one row: `mean` [A], `log_std` [A], `value` (scalar, normalised units)."""

    mean: Tensor
    log_std: Tensor
    value: Tensor
    state: State


def network(params: dict[str, Tensor], obs_row: Tensor, policy: int, state: State) -> Output:
    """One step of policy `policy` on one observation [D]. Zeroing the state at an episode's start is the caller's."""
    x = obs_row
    if "phi" in params:
        x = torch.cat([obs_row, params["phi"][policy]])
    if "w_ih" in params:
        if state is None:
            raise ValueError("an LSTM needs a state")
        state = lstm_step(params, x, state)
        x = layer_norm(state[0], params["ln_w"], params["ln_b"])
    layer = 0
    while f"w{layer}" in params:
        x = elu(params[f"w{layer}"] @ x + params[f"b{layer}"])
        layer += 1
    mean = params["w_mu"] @ x + params["b_mu"]
    value = (params["w_v"] @ x + params["b_v"])[0]
    return Output(mean, params["log_std"][policy], value, state)


def lstm_step(params: dict[str, Tensor], x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """c' = f·c + i·g, h' = o·tanh(c'), with the four gates stacked in the order i, f, g, o."""
    h, c = state
    gates = params["w_ih"] @ x + params["b_ih"] + params["w_hh"] @ h + params["b_hh"]
    n = h.shape[0]
    i, f = sigmoid(gates[:n]), sigmoid(gates[n : 2 * n])
    g, o = torch.tanh(gates[2 * n : 3 * n]), sigmoid(gates[3 * n :])
    c = f * c + i * g
    return o * torch.tanh(c), c


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e^-x)."""
    return 1.0 / (1.0 + torch.exp(-x))


def elu(x: Tensor) -> Tensor:
    """x where positive, e^x - 1 elsewhere."""
    return torch.where(x > 0.0, x, torch.expm1(torch.where(x > 0.0, torch.zeros_like(x), x)))


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(x - mean) / sqrt(var + 1e-5) · weight + bias, with the biased variance."""
    n = x.shape[0]
    mean = x.sum() / n
    var = ((x - mean) ** 2).sum() / n
    return (x - mean) / torch.sqrt(var + 1e-5) * weight + bias


def log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """log N(action; mean, sigma), summed over actions: minus sheet §1.3's neglogp."""
    total = torch.zeros((), dtype=torch.float64)
    for d in range(action.shape[0]):
        z = (action[d] - mean[d]) / torch.exp(log_std[d])
        total = total - 0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - log_std[d]
    return total


def entropy(log_std: Tensor) -> Tensor:
    """Σ_d (1/2 + 1/2 ln 2π + log σ_d) (sheet §1.3)."""
    total = torch.zeros((), dtype=torch.float64)
    for d in range(log_std.shape[0]):
        total = total + 0.5 + 0.5 * math.log(2.0 * math.pi) + log_std[d]
    return total


def normalise(x: float, mean: float, var: float) -> float:
    """Raw value to the network's units, clamped to ±5 (sheet §1.5)."""
    return min(max((x - mean) / math.sqrt(var + 1e-5), -5.0), 5.0)


def denormalise(y: float, mean: float, var: float) -> float:
    """The network's value to raw units: √(v + 1e-5)·clamp(y, ±5) + m (sheet §1.5)."""
    return math.sqrt(var + 1e-5) * min(max(y, -5.0), 5.0) + mean

"""One synthetic rollout and one pair of networks, from a fixed seed, that every library is given; and what is timed."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

CLIP, VALUE_COEF, ENTROPY_COEF, GRAD_NORM = 0.2, 2.0, 0.005, 1.0
DISCOUNT, SMOOTHING = 0.99, 0.95
RATE, KL_THRESHOLD = 1e-4, 0.01
SETTLED = 1e12
"""Samples a normaliser is told it has seen: it works as in training, and yet no data move its mean 0 and deviation 1,
which the libraries would do at different moments of an update."""
LOG_STD = -0.3
POLICY_MOVE = 0.03
"""Deviation of the collecting policy's means from the network's. It makes ratios differ from 1, and some be clipped."""


@dataclass(frozen=True)
class Sizes:
    """Of the rollout, the networks and the update."""

    num_envs: int
    obs: int
    actions: int
    horizon: int
    hidden: tuple[int, ...]
    epochs: int
    minibatches: int


@dataclass(frozen=True)
class Problem:
    """What an update starts from. Time first."""

    sizes: Sizes
    device: torch.device
    shared: bool
    """Whether actor and critic are one network but for their last layers."""
    actor: list[nn.Linear]
    critic: list[nn.Linear]
    obs: Tensor
    """`[T+1, N, D]`"""
    action: Tensor
    """`[T, N, A]`"""
    mean: Tensor
    """`[T, N, A]` of the policy that acted."""
    log_prob: Tensor
    """`[T, N]` under it."""
    value: Tensor
    """`[T, N]`"""
    reward: Tensor
    """`[T, N]`"""
    done: Tensor
    """`[T, N]` bool, all of them terminations: libraries differ in how they bootstrap truncations."""

    def first_minibatch(self) -> "Problem":
        """A single gradient step on the rows of the first minibatch, which are those of the first environments."""
        count = self.sizes.num_envs // self.sizes.minibatches
        tables = ("obs", "action", "mean", "log_prob", "value", "reward", "done")
        cut: dict[str, Any] = {name: getattr(self, name)[:, :count].contiguous() for name in tables}
        return replace(self, sizes=replace(self.sizes, num_envs=count, epochs=1, minibatches=1), **cut)

    def load(self, actor: list[nn.Linear], critic: list[nn.Linear]) -> None:
        """Give a library's layers these weights."""
        with torch.no_grad():
            for own, given in zip([*actor, *critic], [*self.actor, *self.critic], strict=True):
                own.weight.copy_(given.weight)
                own.bias.copy_(given.bias)


@dataclass(frozen=True)
class Losses:
    """Means over an update's gradient steps."""

    surrogate: float
    value: float
    """Without its coefficient."""


class Contestant(ABC):
    """A library with the problem's data in its storage and the problem's weights in its networks."""

    clips_values_alike = True
    """Whether the value loss is the larger one of the clipped and the plain, so that it agrees where the clip binds."""

    shares = False
    """Whether actor and critic can be one network but for their last layers."""

    compiles = False
    """Whether it offers to compile its networks."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._start = [p.detach().clone() for p in self._parameters]

    @abstractmethod
    def update(self) -> Losses:
        """From a rollout to trained networks: targets, every gradient step, normalisers, and the metrics read."""

    def restore(self) -> None:
        """Weights and learning rate as they were at first, so that every update does the same work."""
        with torch.no_grad():
            for parameter, start in zip(self._parameters, self._start, strict=True):
                parameter.copy_(start)


def build(sizes: Sizes, device: torch.device, value_move: float, *, shared: bool = False) -> Problem:
    """Old values lie up to `value_move` from those of the critic: beyond `CLIP`, the value clip binds."""
    generator = torch.Generator().manual_seed(0)
    horizon, num_envs = sizes.horizon, sizes.num_envs

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device)

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        actor = _layers((sizes.obs, *sizes.hidden, sizes.actions), device)
        critic = _layers((sizes.obs, *sizes.hidden, 1), device)
        if shared:
            critic = [*actor[:-1], critic[-1]]
        obs = normal(horizon + 1, num_envs, sizes.obs).clamp(-4, 4)  # no library's clip binds
        mean = _evaluate(actor, obs[:-1]) + POLICY_MOVE * normal(horizon, num_envs, sizes.actions)
        policy = torch.distributions.Normal(mean, torch.full_like(mean, LOG_STD).exp())
        action = mean + policy.stddev * normal(*mean.shape)
        log_prob = policy.log_prob(action).sum(-1)
        moved = 2 * torch.rand(horizon, num_envs, generator=generator).to(device) - 1
        value = _evaluate(critic, obs[:-1]).squeeze(-1) + value_move * moved
        done = (torch.rand(horizon, num_envs, generator=generator) < 0.02).to(device)
        reward = 0.3 * normal(horizon, num_envs)
    return Problem(sizes, device, shared, actor, critic, obs, action, mean, log_prob, value, reward, done)


def _layers(widths: tuple[int, ...], device: torch.device) -> list[nn.Linear]:
    return [nn.Linear(before, after).to(device) for before, after in itertools.pairwise(widths)]


def _evaluate(layers: list[nn.Linear], x: Tensor) -> Tensor:
    for layer in layers[:-1]:
        x = nn.functional.elu(layer(x))
    return layers[-1](x)


@contextmanager
def fixed_order(sizes: Sizes, device: torch.device) -> Iterator[None]:
    """Every shuffle of rows comes out environment by environment, which is the order of the one library that has none.

    The draw is made all the same: it belongs to an update's cost.
    """
    rows = torch.arange(sizes.horizon * sizes.num_envs).view(sizes.horizon, sizes.num_envs).T.flatten()
    orders = {kind: rows.to(kind) for kind in {"cpu", device.type}}

    def ordering(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def ordered(*args: Any, **options: Any) -> Tensor:
            drawn = draw(*args, **options)
            if drawn.shape[-1:] != rows.shape:  # PyTorch's compiler draws too
                return drawn
            return orders[drawn.device.type].expand_as(drawn)

        return ordered

    with (
        patch.object(torch, "randperm", ordering(torch.randperm)),
        patch.object(torch.Tensor, "argsort", ordering(torch.Tensor.argsort)),  # of random keys, as we shuffle
    ):
        yield


@contextmanager
def recorded_losses() -> Iterator[list[Tensor]]:
    """The total loss of every gradient step, whoever takes it: what a gradient is asked of."""
    losses: list[Tensor] = []

    def recording(differentiate: Callable[..., Any]) -> Callable[..., Any]:
        def record(loss: Tensor | Sequence[Tensor], *args: Any, **options: Any) -> Any:
            if isinstance(loss, Tensor):  # PyTorch's compiler asks for gradients too, of lists
                losses.append(loss.detach().clone())
            return differentiate(loss, *args, **options)

        return record

    with (
        patch.object(torch.Tensor, "backward", recording(torch.Tensor.backward)),
        patch.object(torch.autograd, "grad", recording(torch.autograd.grad)),
    ):
        yield losses

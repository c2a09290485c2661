"""Adam for a population: M members step at once, each at a rate of its own, or not at all."""

from typing import Any

import torch
from torch import Tensor

from echelon.envs.contract import State
from echelon.learning.optimizer import adam_step
from echelon.models.population import Population


class PopulationAdam:
    """PyTorch's fused Adam with its defaults, a member at a time on that member's row of all parameters.

    `rate` `[M]` may be moved in place at any time. A member that is not `active` keeps parameters, moments and step
    count.
    """

    def __init__(self, population: Population, rate: float) -> None:
        self.population = population
        flat = population.flat
        self.rate = torch.full((population.policies,), rate, dtype=flat.dtype, device=flat.device)
        self.gradient, self.mean, self.square = (torch.zeros_like(flat) for _ in range(3))
        self.steps = torch.zeros(population.policies, device=flat.device)

    def step(self, loss: Tensor, clip_norm: Tensor, active: Tensor) -> Tensor:
        """One step of every `active` `[M]` member down its own gradient of `loss`.

        A member's gradient is clipped to its `clip_norm` `[M]`; returns the norms `[M]` before that.
        """
        gradients = torch.autograd.grad(loss, list(self.population.weights.values()))
        for place, gradient in zip(self.population.places, gradients, strict=True):
            self.gradient[:, place].copy_(gradient.flatten(1))
        norm = torch.linalg.vector_norm(self.gradient, dim=1)
        self.gradient.mul_((clip_norm.to(norm.dtype) * (norm + 1e-6).reciprocal()).clamp(max=1.0)[:, None])
        skip = (~active).to(self.steps.dtype)
        for row in range(self.population.policies):
            tensors = (self.population.flat, self.gradient, self.mean, self.square, self.steps, self.rate, skip)
            adam_step(*(x[row] for x in tensors))
        return norm

    def copy(self, donor: int, member: int) -> None:
        """The member goes on with the donor's moments; its rate is a hyperparameter and stays."""
        for x in (self.mean, self.square, self.steps):
            x[member].copy_(x[donor])

    def state_dict(self) -> State:
        return {name: getattr(self, name).clone() for name in ("rate", "mean", "square", "steps")}

    def load_state_dict(self, state: Any) -> None:
        for name, x in state.items():
            getattr(self, name).copy_(x)

"""skrl's PPO."""

# The library is installed for this benchmark only.
# pyright: reportMissingImports=false

import itertools
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from peers import problem as given
from peers.problem import Contestant, Losses, Problem, Sizes
from skrl.agents.torch.ppo import PPO
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from skrl.resources.preprocessors.torch import RunningStandardScaler
from skrl.resources.schedulers.torch import KLAdaptiveLR
from torch import Tensor, nn


class Policy(GaussianMixin, Model):
    """Mean by an MLP, a free log sigma."""

    def __init__(self, sizes: Sizes, spaces: dict[str, Any]) -> None:
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self)
        self.net = _mlp((sizes.obs, *sizes.hidden, sizes.actions))
        self.log_std = nn.Parameter(torch.full((sizes.actions,), given.LOG_STD))

    def compute(self, inputs: dict[str, Tensor], role: str) -> tuple[Tensor, dict[str, Tensor]]:
        return self.net(inputs["observations"]), {"log_std": self.log_std}


class Value(DeterministicMixin, Model):
    """Value by an MLP."""

    def __init__(self, sizes: Sizes, spaces: dict[str, Any]) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = _mlp((sizes.obs, *sizes.hidden, 1))

    def compute(self, inputs: dict[str, Tensor], role: str) -> tuple[Tensor, dict[str, Tensor]]:
        return self.net(inputs["observations"]), {}


class Peer(Contestant):
    """`PPO.update` on a `RandomMemory`, with its normalisers of observations and values."""

    clips_values_alike = False

    def __init__(self, problem: Problem) -> None:
        sizes, device = problem.sizes, problem.device
        spaces = {"observation_space": _box(sizes.obs), "action_space": _box(sizes.actions), "device": device}
        policy, value = Policy(sizes, spaces).to(device), Value(sizes, spaces).to(device)
        problem.load(*([layer for layer in model.net if isinstance(layer, nn.Linear)] for model in (policy, value)))
        self.memory = RandomMemory(memory_size=sizes.horizon, num_envs=sizes.num_envs, device=device, replacement=False)
        models = {"policy": policy, "value": value}
        self.agent = PPO(models=models, memory=self.memory, cfg=_settings(sizes, device), **spaces)
        self.agent.init()
        self.agent.enable_models_training_mode(True)
        self.agent._current_next_observations = problem.obs[-1]
        for normaliser in (self.agent._observation_preprocessor, self.agent._value_preprocessor):
            normaliser.current_count.fill_(given.SETTLED)
        self.problem = problem
        super().__init__([*policy.parameters(), *value.parameters()])
        self.restore()

    def update(self) -> Losses:
        self.agent.update(timestep=0, timesteps=1)
        means = {name: values[-1] for name, values in self.agent.tracking_data.items()}
        return Losses(means["Loss / Policy loss"], means["Loss / Value loss"] / given.VALUE_COEF)

    def restore(self) -> None:
        """Its memory too, where an update leaves normalised values."""
        super().restore()
        self.agent.optimizer.param_groups[0]["lr"] = given.RATE
        problem, tables = self.problem, self.memory.tensors
        tables["observations"].copy_(problem.obs[:-1])
        tables["actions"].copy_(problem.action)
        for name, x in (
            ("rewards", problem.reward),
            ("terminated", problem.done),
            ("truncated", torch.zeros_like(problem.done)),
            ("log_prob", problem.log_prob),
            ("values", problem.value),
        ):
            tables[name].copy_(x.unsqueeze(-1))
        self.memory.filled = True


def _settings(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    return {
        "rollouts": sizes.horizon,
        "learning_epochs": sizes.epochs,
        "mini_batches": sizes.minibatches,
        "discount_factor": given.DISCOUNT,
        "gae_lambda": given.SMOOTHING,
        "learning_rate": given.RATE,
        "learning_rate_scheduler": KLAdaptiveLR,
        "learning_rate_scheduler_kwargs": {"kl_threshold": given.KL_THRESHOLD},
        "observation_preprocessor": RunningStandardScaler,
        "observation_preprocessor_kwargs": {"size": sizes.obs, "device": device},
        "value_preprocessor": RunningStandardScaler,
        "value_preprocessor_kwargs": {"size": 1, "device": device},
        "grad_norm_clip": given.GRAD_NORM,
        "ratio_clip": given.CLIP,
        "value_clip": given.CLIP,
        "entropy_loss_scale": given.ENTROPY_COEF,
        "value_loss_scale": given.VALUE_COEF,
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
    }


def _mlp(widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ELU()]
    return nn.Sequential(*layers[:-1])


def _box(width: int) -> Box:
    return Box(-np.inf, np.inf, (width,), np.float32)

"""rl_games' PPO."""

# The library is installed for this benchmark only.
# pyright: reportMissingImports=false

import contextlib
import io
import tempfile
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from peers import problem as given
from peers.problem import Contestant, Losses, Problem
from rl_games.algos_torch.a2c_continuous import A2CAgent
from rl_games.common.a2c_common import swap_and_flatten01
from rl_games.common.algo_observer import AlgoObserver
from rl_games.common.ivecenv import IVecEnv
from torch import Tensor, nn


class Environments(IVecEnv):
    """None at all; an agent only tells them that it trains."""


class Agent(A2CAgent):
    """Its own agent, whose environments have been stepped already."""

    def __init__(self, problem: Problem, params: dict[str, Any]) -> None:
        super().__init__("run", params)
        self.last = {"obs": problem.obs[-1]}
        self.tables = {
            "obses": problem.obs[:-1],
            "dones": torch.cat((torch.zeros_like(problem.done[:1]), problem.done[:-1])),  # before the step
            "values": problem.value.unsqueeze(-1),
            "actions": problem.action,
            "neglogpacs": -problem.log_prob,
            "mus": problem.mean,
            "sigmas": torch.full_like(problem.mean, given.LOG_STD).exp(),
        }
        self.rewards, self.ended = problem.reward.unsqueeze(-1), problem.done[-1].float()

    def play_steps(self) -> dict[str, Any]:
        """What it does after the last step."""
        last, values = self.get_values(self.last), self.tables["values"]
        advantage = self.discount_values(self.ended, last, self.tables["dones"].float(), values, self.rewards)
        flat: dict[str, Any] = {name: swap_and_flatten01(x) for name, x in self.tables.items()}
        return flat | {"returns": swap_and_flatten01(advantage + values), "played_frames": 0, "step_time": 0.0}


class Peer(Contestant):
    """`train_epoch`. `compiled` is what its runner makes of an agent by default, with TF32."""

    shares = True
    compiles = True

    def __init__(self, problem: Problem, *, compiled: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # it makes a run's folders
        with contextlib.redirect_stdout(io.StringIO()):  # and prints its networks
            self.agent = Agent(problem, _params(problem, self._folder.name))
        model = self.agent.model
        net = model.a2c_network
        networks = (net.actor_mlp, net.actor_mlp if problem.shared else net.critic_mlp)
        actor, critic = ([x for x in mlp if isinstance(x, nn.Linear)] for mlp in networks)
        problem.load([*actor, net.mu], [*critic, net.value])
        for normaliser in (model.running_mean_std, model.value_mean_std):
            normaliser.running_var.fill_(1 - normaliser.epsilon)
            normaliser.count.fill_(given.SETTLED)
        super().__init__(model.parameters())
        if compiled:
            self.agent.model = torch.compile(model, mode="default")

    def update(self) -> Losses:
        surrogate, value = self.agent.train_epoch()[4:6]
        return Losses(*torch.stack([_mean(surrogate), _mean(value)]).tolist())

    def restore(self) -> None:
        super().restore()
        self.agent.last_lr = given.RATE
        self.agent.update_lr(given.RATE)


def _mean(losses: list[Tensor]) -> Tensor:
    return torch.stack(losses).detach().mean()


def _params(problem: Problem, folder: str) -> dict[str, Any]:
    sizes = problem.sizes
    free = {"name": "default"}
    continuous = {
        "mu_activation": "None",
        "sigma_activation": "None",
        "mu_init": free,
        "sigma_init": {"name": "const_initializer", "val": given.LOG_STD},
        "fixed_sigma": True,
    }
    return {
        "model": {"name": "continuous_a2c_logstd"},
        "network": {
            "name": "actor_critic",
            "separate": not problem.shared,
            "space": {"continuous": continuous},
            "mlp": {"units": list(sizes.hidden), "activation": "elu", "initializer": free},
        },
        "config": {
            "name": "update",
            "train_dir": folder,
            "features": {"observer": AlgoObserver()},
            "env_name": "none",
            "vec_env": Environments(),
            "env_info": {"observation_space": _box(sizes.obs), "action_space": _box(sizes.actions)},
            "device": str(problem.device),
            "num_actors": sizes.num_envs,
            "horizon_length": sizes.horizon,
            "minibatch_size": sizes.num_envs * sizes.horizon // sizes.minibatches,
            "seq_length": 1,
            "mini_epochs": sizes.epochs,
            "reward_shaper": None,
            "normalize_input": True,
            "normalize_value": True,
            "normalize_advantage": True,
            "gamma": given.DISCOUNT,
            "tau": given.SMOOTHING,
            "e_clip": given.CLIP,
            "clip_value": True,
            "critic_coef": 2 * given.VALUE_COEF,
            "entropy_coef": given.ENTROPY_COEF,
            "bounds_loss_coef": 0.0,
            "truncate_grads": True,
            "grad_norm": given.GRAD_NORM,
            "learning_rate": given.RATE,
            "lr_schedule": "adaptive",
            "schedule_type": "standard",
            "kl_threshold": given.KL_THRESHOLD,
        },
    }


def _box(width: int) -> Box:
    return Box(-np.inf, np.inf, (width,), np.float32)

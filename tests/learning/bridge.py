"""The oracle's problems in the library's own tensors."""

from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from learning.iteration import listing
from oracle import Evaluation, Problem, Sequence
from torch import Tensor

from echelon.algorithms import CpoTrainConfig, PullConfig, find
from echelon.config import EnsembleConfig, ModelConfig, UpdateConfig
from echelon.learning.plans import Minibatch, Plan
from echelon.learning.settings import Settings
from echelon.learning.targets import Targets, compute_targets
from echelon.learning.update import Update
from echelon.models.actor_critic import ActorCritic
from echelon.models.normaliser import EPSILON
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import Layout

NAMES = {
    "phi": "phi",
    "log_sigma": "log_std",
    "actor.recur.weight": "w_hh",
    "actor.recur.bias": "b_hh",
    "actor.norm.weight": "ln_w",
    "actor.norm.bias": "ln_b",
    "mean_head.weight": "w_mu",
    "mean_head.bias": "b_mu",
    "value_head.weight": "w_v",
    "value_head.bias": "b_v",
}
"""The oracle's names of parameters that have one in both; `oracle_name` has those of the layers."""


class Bridge:
    """One problem in the library's objects, and the way back to the oracle's keys."""

    def __init__(self, problem: Problem, minibatches: int = 2, **update: object) -> None:
        self.problem = problem
        self.config = make_config(problem, minibatches, **update)
        algorithm = find(problem.algo)
        self.layout = Layout(problem.num_envs, problem.policies, sizes=self.config.envs_per_policy)
        assert self.layout.policy_id.tolist() == list(problem.policy_id)
        self.plan = Plan(
            self.layout, problem.horizon, problem.sequence, algorithm.groups(self.config), minibatches=minibatches
        )
        clips = {"clip": torch.tensor(problem.clips, dtype=torch.float64)} if problem.clips else {}
        self.settings = Settings(self.config.update, self.layout, algorithm.vectors(self.config, self.layout) | clips)
        self.model = make_model(problem)
        self.rollout = make_rollout(problem)
        self.follower = torch.tensor([problem.follower])
        reads_leader = algorithm.reads_leader(self.config)
        self.update = Update(
            self.model, algorithm.actor_loss, self.plan, self.settings, self.config, reads_leader=reads_leader
        )

    def targets(self) -> Targets:
        given = self.plan, self.rollout, self.model, self.follower, self.problem.adversarial
        return compute_targets(*given, self.settings, self.config.ensemble)

    def evaluations(self) -> list[list[Evaluation]]:
        """The oracle's keys of the plan's tables `[L, 1, S]`."""
        unit, policy, group = listing(self.plan, self.follower)
        n = self.problem.num_envs
        return [
            [Evaluation(row // n, row % n, p, g) for row, p, g in zip(line, policy.tolist(), group, strict=True)]
            for line in self.plan.rows(unit).tolist()
        ]

    def table(self, values: dict[Evaluation, float]) -> Tensor:
        """The oracle's figures laid out as the plan's tables."""
        return torch.tensor([[[values[e] for e in line]] for line in self.evaluations()], dtype=torch.float64)

    def oracle_minibatch(self, minibatch: Minibatch) -> list[Evaluation] | list[Sequence]:
        """What the oracle trains on for the same minibatch."""
        first_rows = self.evaluations()[0]
        first = [first_rows[column] for column in minibatch.evaluation.tolist()]
        if not self.problem.recurrent:
            return first
        return [Sequence(e.t // self.problem.sequence, e.env, e.policy, e.group) for e in first]

    def gradients(self) -> dict[str, Tensor]:
        """The model's gradients under the oracle's names."""
        return oracle_names({name: p.grad for name, p in self.model.named_parameters() if p.grad is not None})


UPDATE = ("horizon", "sequence", "discount", "gae_lambda", "clip", "critic_coef", "bounds_coef")
UPDATE += ("entropy_coef", "entropy_scale")
ENSEMBLE = ("estimator", "clip_centre", "advantage_scope", "loss_scale", "own_weight", "borrow_weight")
PULL = ("beta", "temperature", "cap", "use_advantage", "reverse_temperature")


def make_config(problem: Problem, minibatches: int, **update: object) -> CpoTrainConfig:
    def same(names: tuple[str, ...]) -> dict[str, Any]:
        return {name: getattr(problem, name) for name in names}

    return CpoTrainConfig(
        algo=problem.algo,
        policies=problem.policies,
        num_envs=problem.num_envs,
        envs_per_policy=tuple(Counter(problem.policy_id)[k] for k in range(problem.policies)),
        model=ModelConfig(lstm=3 if problem.recurrent else 0),
        update=replace(UpdateConfig(minibatches=minibatches, **same(UPDATE)), **update),
        ensemble=EnsembleConfig(borrow_from="all" if problem.borrows_all else "one", **same(ENSEMBLE)),
        pull=PullConfig(normalise=problem.pull_normalise, **same(PULL)),
    )


def make_model(problem: Problem) -> ActorCritic:
    """The oracle's parameters in the library's network; observations pass the normaliser unchanged."""
    params = problem.params
    obs_dim, action_dim = problem.obs.shape[-1], problem.action.shape[-1]
    hidden = tuple(params[f"w{i}"].shape[0] for i in range(len(params)) if f"w{i}" in params)
    lstm = params["w_hh"].shape[1] if problem.recurrent else 0
    phi_dim = params["phi"].shape[1] if "phi" in params else 0
    config = ModelConfig(hidden=hidden, lstm=lstm, phi_dim=phi_dim, obs_clip=1e9)
    model = ActorCritic({"policy": obs_dim}, action_dim, problem.policies, config).double()
    model.obs_norm["policy"].var.fill_(1 - EPSILON)
    for name in ("mean", "var", "count"):
        getattr(model.value_norm, name).fill_(getattr(problem, f"value_{name}"))
    write_params(model, params)
    return model


def oracle_name(name: str, lstm: bool) -> str:
    """Return the oracle's name of a parameter. Its first weight acts on [obs, φ] in one piece."""
    if name in NAMES:
        return NAMES[name]
    _, part, *number, kind = name.split(".")
    if part in ("observe", "condition"):
        return f"{kind[0]}_ih" if lstm else f"{kind[0]}0"
    return f"{kind[0]}{int(number[0]) + (not lstm)}"


def write_params(model: ActorCritic, params: dict[str, Tensor]) -> None:
    """Copy the oracle's parameters."""
    lstm, obs_dim = bool(model.actor.lstm), model.actor.observe.in_features
    columns = {"actor.observe.weight": slice(obs_dim), "actor.condition.weight": slice(obs_dim, None)}
    parameters = dict(model.named_parameters())
    assert {oracle_name(name, lstm) for name in parameters} == set(params)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(params[oracle_name(name, lstm)][..., columns.get(name, slice(None))][None])


def oracle_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by our parameter names, under the oracle's names and in its shapes."""
    result: dict[str, Tensor] = {}
    for name, x in tensors.items():
        key, part = oracle_name(name, "actor.recur.weight" in tensors), x.squeeze(0)
        result[key] = torch.cat((result[key], part), dim=1) if key in result else part
    return result


def make_rollout(problem: Problem) -> Rollout:
    n, steps = problem.num_envs, problem.horizon + 1
    if problem.recurrent:
        state = torch.cat((problem.state_h, problem.state_c), dim=-1)
    else:
        state = torch.zeros(steps, n, 0, dtype=torch.float64)
    given = ("start", "action", "mean", "log_prob", "value", "reward", "terminated", "truncated", "final_value")
    return Rollout(
        obs={"policy": problem.obs},
        state=state,
        log_std=problem.params["log_std"].detach(),
        **{name: getattr(problem, name) for name in given},
    )

"""Random problems whose rollout really was collected by their parameters."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from oracle.problem import Problem
from oracle.targets import denormalise, log_prob, network

OBS, ACTIONS, PHI, HIDDEN = 3, 2, 2, (5, 4)
GARBAGE = 123.0
"""`final_value` where nothing may read it."""


def random_problem(
    seed: int,
    policies: int,
    blocks: tuple[int, ...],
    horizon: int,
    sequence: int = 1,
    lstm: int = 0,
    *,
    value_gain: float = 1.0,
    **settings: Any,
) -> Problem:
    """A rollout of the oracle's network on random observations; `blocks[k]` environments for policy k.

    `lstm` is the LSTM's size, 0 for an MLP. Every environment's episode ends at random steps, and in each block at
    least one ends by itself in the middle, one is truncated in the middle, and one is truncated or terminated at the
    last step, as far as the horizon has room. One row of the leader's is terminated and truncated at once. A large
    `value_gain` drives values into the normaliser's clamps. `settings` are fields of `Problem`.
    """
    generator = torch.Generator().manual_seed(seed)
    params = random_params(generator, policies, lstm)
    with torch.no_grad():
        params["w_v"] *= value_gain
    policy_id = [policy for policy, size in enumerate(blocks) for _ in range(size)]
    terminated, truncated = random_ends(generator, blocks, horizon)
    shape, zeros = (horizon, len(policy_id)), partial(torch.zeros, dtype=torch.float64)
    start = torch.zeros(horizon + 1, len(policy_id), dtype=torch.bool)
    start[0] = torch.rand(len(policy_id), generator=generator) < 0.5
    start[1:] = terminated | truncated
    adversarial = -0.1 * torch.rand(shape, generator=generator, dtype=torch.float64)
    adversarial[:, [env for env, policy in enumerate(policy_id) if policy == 0]] = 0.0
    settings = {"value_mean": 0.3, "value_var": 2.5, "value_count": 50.0} | settings
    problem = Problem(
        policies=policies,
        policy_id=policy_id,
        horizon=horizon,
        sequence=sequence,
        params=params,
        obs=normal(generator, horizon + 1, len(policy_id), OBS),
        action=zeros(*shape, ACTIONS),
        log_prob=zeros(*shape),
        mean=zeros(*shape, ACTIONS),
        log_std=zeros(*shape, ACTIONS),
        value=zeros(horizon + 1, len(policy_id)),
        reward=normal(generator, *shape),
        adversarial=adversarial,
        terminated=terminated,
        truncated=truncated,
        final_value=torch.full(shape, GARBAGE, dtype=torch.float64),
        start=start,
        state_h=zeros(horizon + 1, len(policy_id), lstm) if lstm else None,
        state_c=zeros(horizon + 1, len(policy_id), lstm) if lstm else None,
        **settings,
    )
    with torch.no_grad():
        for env in range(len(policy_id)):
            collect(problem, env, generator)
    return problem


def collect(problem: Problem, env: int, generator: torch.Generator) -> None:
    """Fill one environment's rows by acting."""
    policy = problem.policy_id[env]
    state = None
    if problem.state_h is not None:
        units = problem.state_h.shape[2]
        state = torch.tanh(normal(generator, units)), normal(generator, units)
    for t in range(problem.horizon + 1):
        if state is not None and problem.state_h is not None and problem.state_c is not None:
            if problem.start[t, env]:
                state = (torch.zeros_like(state[0]), torch.zeros_like(state[1]))
            problem.state_h[t, env], problem.state_c[t, env] = state
        out = network(problem.params, problem.obs[t, env], policy, state)
        state = out.state
        problem.value[t, env] = denormalise(out.value.item(), problem.value_mean, problem.value_var)
        if t == problem.horizon:
            return
        noise = normal(generator, out.mean.shape[0])
        problem.mean[t, env], problem.log_std[t, env] = out.mean, out.log_std
        problem.action[t, env] = out.mean + torch.exp(out.log_std) * noise
        problem.log_prob[t, env] = log_prob(out.mean, out.log_std, problem.action[t, env])
        if problem.truncated[t, env]:
            # The episode's own state, before the reset, meets the observation before the reset.
            final = network(problem.params, normal(generator, problem.obs.shape[2]), policy, state)
            problem.final_value[t, env] = denormalise(final.value.item(), problem.value_mean, problem.value_var)


def random_params(generator: torch.Generator, policies: int, lstm: int) -> dict[str, Tensor]:
    """Parameters large enough for policies to differ, means to leave ±1.1, and every gradient to matter."""
    params: dict[str, Tensor] = {"log_std": 0.2 * normal(generator, policies, ACTIONS) - 0.4}
    width = OBS
    if policies > 1:
        params["phi"] = normal(generator, policies, PHI)
        width += PHI
    if lstm:
        params["w_ih"] = normal(generator, 4 * lstm, width) / width**0.5
        params["w_hh"] = normal(generator, 4 * lstm, lstm) / lstm**0.5
        params["b_ih"] = 0.3 * normal(generator, 4 * lstm)
        params["b_hh"] = 0.3 * normal(generator, 4 * lstm)
        params["ln_w"] = 1.0 + 0.2 * normal(generator, lstm)
        params["ln_b"] = 0.2 * normal(generator, lstm)
        width = lstm
    for layer, units in enumerate(HIDDEN):
        params[f"w{layer}"] = normal(generator, units, width) / width**0.5
        params[f"b{layer}"] = 0.3 * normal(generator, units)
        width = units
    params["w_mu"] = normal(generator, ACTIONS, width) / width**0.5
    params["b_mu"] = 0.3 * normal(generator, ACTIONS)
    params["w_v"] = normal(generator, 1, width) / width**0.5
    params["b_v"] = 0.3 * normal(generator, 1)
    return {name: p.requires_grad_() for name, p in params.items()}


def random_ends(generator: torch.Generator, blocks: tuple[int, ...], horizon: int) -> tuple[Tensor, Tensor]:
    """(terminated, truncated), each [T, N], with the cases `random_problem` promises."""
    shape = (horizon, sum(blocks))
    done = torch.rand(shape, generator=generator) < 0.15
    timeout = torch.rand(shape, generator=generator) < 0.5
    terminated, truncated = done & ~timeout, done & timeout
    first = 0
    for policy, size in enumerate(blocks):
        forced = [(0, horizon // 2, True), (1, horizon - 1, policy % 2 == 1), (2, horizon // 2 - 1, False)]
        for offset, t, terminates in forced:
            env = first + offset % size
            if t >= 0:
                terminated[t, env], truncated[t, env] = terminates, not terminates
        first += size
    if blocks[0] > 1 and horizon > 2:
        terminated[0, blocks[0] - 1] = truncated[0, blocks[0] - 1] = True
    return terminated, truncated


def perturbed(problem: Problem, seed: int, scale: float = 0.1) -> dict[str, Tensor]:
    """The rollout's parameters moved at random: where ratios leave 1 and clips bite."""
    generator = torch.Generator().manual_seed(seed)
    params = problem.params.items()
    return {name: (p.detach() + scale * normal(generator, *p.shape)).requires_grad_() for name, p in params}


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(shape, generator=generator, dtype=torch.float64)

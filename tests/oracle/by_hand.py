"""A problem small enough to work out by hand.

No hidden layer: with one observation x and one conditioning number φ_k per policy the heads are mean = φ_k and
V_k = x + φ_k, σ = 1, and the value normaliser is the identity. Leader: environment 0, follower: environment 1.
"""

import math

import torch
from torch import Tensor

from oracle import Evaluation, Prepared, Problem, Target

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
LN2 = math.log(2.0)


def tensor(*rows: list[float]) -> Tensor:
    """[T, N] float64 from one list per environment."""
    return torch.tensor(rows, dtype=torch.float64).T.contiguous()


def leaf(data: object) -> Tensor:
    """A parameter."""
    return torch.tensor(data, dtype=torch.float64, requires_grad=True)


def tiny(follower_phi: float = 1.0, **settings: object) -> Problem:
    """Four steps of two environments; see the module's docstring. γ = τ = 1/2."""
    flags = torch.zeros(4, 2, dtype=torch.bool)
    terminated, truncated = flags.clone(), flags.clone()
    terminated[1, 0] = truncated[3, 0] = truncated[1, 1] = True
    start = torch.zeros(5, 2, dtype=torch.bool)
    start[1:] = terminated | truncated
    # log N(a; 0, 1) - log N(a; 1, 1) = 1/2 - a: the leader's ratio on the follower's rows is 1/2, 1/2, 1/2, 2.
    action = tensor([0.0, 1.0, 0.0, 0.0], [0.5 + LN2, 0.5 + LN2, 0.5 + LN2, 0.5 - LN2])
    mean = tensor([0.0] * 4, [follower_phi] * 4)
    defaults = {
        "value_var": 1.0 - 1e-5,
        "discount": 0.5,
        "gae_lambda": 0.5,
        "reward": tensor([1.0, 2.0, 3.0, 4.0], [1.0] * 4),
        "adversarial": tensor([0.0] * 4, [-0.5] * 4),
        "value": tensor([1.0, 1.0, 2.0, 2.0, 8.0], [1.0, 1.0, 1.0, 1.0, 4.0]),
        "final_value": tensor([99.0, 99.0, 99.0, 6.0], [99.0, 3.0, 99.0, 99.0]),
        "log_prob": -0.5 * (action - mean) ** 2 - HALF_LOG_2PI,
    }
    return Problem(
        policies=2,
        policy_id=[0, 1],
        horizon=4,
        sequence=1,
        params={
            "phi": leaf([[0.0], [follower_phi]]),
            "log_std": leaf([[0.0], [0.0]]),
            "w_mu": leaf([[0.0, 1.0]]),
            "b_mu": leaf([0.0]),
            "w_v": leaf([[1.0, 1.0]]),
            "b_v": leaf([0.0]),
        },
        obs=tensor([0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0, 5.0])[..., None],
        action=action[..., None],
        mean=mean[..., None],
        log_std=torch.zeros(4, 2, 1, dtype=torch.float64),
        terminated=terminated,
        truncated=truncated,
        start=start,
        **(defaults | settings),
    )


def path(target: dict[Evaluation, Target], env: int, policy: int, group: str) -> list[Target]:
    """Targets of one environment's rows in time order."""
    return [target[Evaluation(t, env, policy, group)] for t in range(4)]


def prepared_by_hand(rows: dict[Evaluation, tuple[float, float, float]]) -> Prepared:
    """(Â, old value, return) of every row, clipped around 1."""
    advantage = {e: x[0] for e, x in rows.items()}
    value, returns = {e: x[1] for e, x in rows.items()}, {e: x[2] for e, x in rows.items()}
    return Prepared({}, advantage, value, returns, dict.fromkeys(rows, 1.0), 0.0, 1.0, 1.0)

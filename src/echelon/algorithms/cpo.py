"""Coupled Policy Optimization: SAPG, with every follower pulled towards the leader.

Section 5 of the CPO paper. The follower's constrained problem (best advantage within a KL ball around the leader) has a
closed-form solution; fitting it gives an advantage-weighted regression onto the leader's actions, `L_CPO,F_i`. The
whole objective, `L_CPO`, is SAPG's plus β times that term for each follower.
"""

from torch import Tensor

from echelon.algorithms import CpoTrainConfig
from echelon.algorithms.adversary import Adversary
from echelon.algorithms.algorithm import Algorithm
from echelon.algorithms.ppo import own_term
from echelon.algorithms.sapg import BORROWS, borrow_term, borrows
from echelon.envs.contract import Env
from echelon.errors import UserError
from echelon.learning.batch import Batch, total
from echelon.learning.losses import pull_weight, surrogate
from echelon.learning.objective import ActorLoss
from echelon.learning.plans import Group, followers_from_leader
from echelon.rollout.layout import Layout

PULL = Group("follower_pull", followers_from_leader, trains_critic=False)


def actor_loss(batch: Batch, config: CpoTrainConfig) -> ActorLoss:
    """`L_CPO(θ)`: SAPG's objective and β times the sum of the followers' pull terms."""
    own = own_term(batch, config) if batch.leader_log_prob is None else coupled_own_term(batch, config)
    terms = {"own": own, BORROWS.name: borrow_term(batch, config)}
    if PULL.name not in batch.plan.columns:  # one policy: no follower to pull
        return ActorLoss(terms)
    weight = pull_weights(batch, config)
    terms[PULL.name] = pull_term(batch, normalised(weight, batch) if config.pull.normalise else weight, config)
    at_cap = (weight >= config.pull.cap * (1 - 1e-6)).to(weight.dtype).mean((0, 2))
    return ActorLoss(terms, {"pull/weight": weight.mean((0, 2)), "pull/at_cap": at_cap})


def pull_weights(batch: Batch, config: CpoTrainConfig) -> Tensor:
    """w = min(exp(Â_i/λ_f), cap) `[L, G, pulls]`; without gradient, as advantages are data."""
    pull = config.pull
    advantage = batch.advantage[..., batch.columns(PULL.name)]
    return pull_weight(advantage if pull.use_advantage else advantage * 0, pull.temperature, pull.cap)


def normalised(weight: Tensor, batch: Batch) -> Tensor:
    """Weights divided by their mean, each follower's by its own: then β alone is the pull's strength."""
    each = weight.unflatten(2, (batch.plan.layout.each - 1, -1))  # the leader's rows, once for every follower
    return (each / batch.ranks.mean(each.mean((0, 3), keepdim=True))).flatten(2)


def pull_term(batch: Batch, weight: Tensor, config: CpoTrainConfig) -> Tensor:
    """Σ -β·w·log π_i(a|s) on the leader's rows, the first expectation of `L_CPO,F_i`."""
    return -config.pull.beta * total(weight * batch.log_prob[..., batch.columns(PULL.name)])


def coupled_own_term(batch: Batch, config: CpoTrainConfig) -> Tensor:
    """PPO's term with Â - λ_r·(log π_i - log π_leader) for Â: the reverse-KL penalty of the released code.

    It concerns followers only; the leader's distance to itself is zero.
    """
    assert batch.leader_log_prob is not None
    own = batch.own
    log_prob = batch.log_prob[..., own]
    follower = (batch.policy_id[:, own] % batch.plan.layout.each > 0).to(log_prob.dtype)
    penalty = config.pull.reverse_temperature * follower * (log_prob - batch.leader_log_prob)
    advantage = batch.advantage[..., own] - penalty
    loss = surrogate(batch.log_ratio[..., own], advantage, batch.setting("clip", own))
    return config.ensemble.own_weight * total(loss)


def extra_reward(env: Env, layout: Layout, config: CpoTrainConfig) -> Adversary | None:
    """The adversarial reward of an ensemble; None if its coefficient is 0 and its loss is not asked for."""
    if not (config.adversary.coef or config.adversary.watch) or layout.each == 1:
        return None
    width = env.obs_spec.get("policy")
    if not isinstance(width, int):
        lacks = "the adversary needs the observation group policy, and this environment has images only"
        raise UserError(f"{lacks}; --adversary.coef 0 leaves it out")
    return Adversary(width, env.action_dim, layout, config)


CPO = Algorithm(
    "cpo",
    actor_loss,
    settings=CpoTrainConfig,
    groups=lambda config: (borrows(config), PULL),
    reads_leader=lambda config: config.pull.reverse_temperature != 0,
    extra_reward=extra_reward,
    colour=0,
)

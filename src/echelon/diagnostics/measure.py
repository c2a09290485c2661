"""How far apart the policies of a run are, measured on rows of a rollout at the parameters that collected it."""

import torch
from torch import Tensor

from echelon.config import UpdateConfig
from echelon.diagnostics.propositions import (
    clip_bias,
    clip_bias_bound,
    ess_rate,
    gaussian_score,
    is_deviation,
    kl_matrix,
    nearest_policy,
)
from echelon.learning.targets import one_step
from echelon.models import gaussian
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.buffer import Rollout, Trajectory
from echelon.rollout.layout import LEADER, Layout

Distances = tuple[Tensor, dict[str, Tensor]]
"""The mean KL `[M, M]` from row to column, on states of the row's policy, and 0-d metrics; all on the device."""


@torch.no_grad()
def measure(model: ActorCritic, rollout: Rollout, layout: Layout, states: int, update: UpdateConfig) -> Distances:
    """Evaluate every policy on up to `states` rows of each policy's data, spread evenly over environments and steps.

    The metrics, of an ensemble only, tell how many of the followers' rows the leader can use, and how much of its
    gradient a clip around 1 takes away there (Proposition 2). A recurrent network takes a single step from the
    collector's stored state. Nothing random is drawn, so measuring never changes what is learned. Several ranks share
    the states between them.
    """
    ranks = layout.ranks
    rows = layout.spread_rows(rollout.horizon, -(-states // ranks.size))  # [M, S]
    flat = rows.flatten()
    networks = layout.networks
    # Every network looks at all states.
    looked_at = {name: x[:-1].flatten(0, 1)[flat] for name, x in rollout.obs.items()}
    everywhere = {name: torch.cat([x] * networks)[None] for name, x in looked_at.items()}
    projected = model.project(everywhere)
    state = rollout.state[:-1].flatten(0, 1)[flat].repeat(networks, 1)
    start = torch.zeros(1, len(state), dtype=torch.bool, device=flat.device)
    means = []
    for within in range(layout.each):
        output = model.evaluate(projected, layout.ids(within, len(flat)), state, start)
        means.append(output.mean.view(networks, *rows.shape, -1))
    mean = torch.stack(means, dim=1).flatten(0, 1).transpose(0, 1)  # [M of the states, M of the policy, S, A]
    kl = ranks.mean(kl_matrix(mean, model.log_std))
    if networks > 1:  # in a population none learns from another's rows
        return kl, {}
    action, behaviour = rollout.action.flatten(0, 1)[rows], rollout.log_prob.flatten(0, 1)[rows]
    log_w = gaussian.log_prob(action, mean[:, LEADER], model.log_std[LEADER]) - behaviour
    score = gaussian_score(action[1:], mean[1:, LEADER], model.log_std[LEADER]).flatten(0, 1)
    leads = log_w[1:].flatten(), _leader_advantage(model, rollout, layout, rows[1:].flatten(), update), score
    return kl, {
        "ess": ess_rate(log_w, ranks),
        "is_deviation": ranks.mean(is_deviation(log_w[1:])),
        "clip_bias": ranks.mean(clip_bias(*leads, update.clip)).norm(),
        "clip_bias_bound": ranks.mean(clip_bias_bound(*leads, update.clip).square()).sqrt(),
        "kl/follower_to_leader": kl[1:, LEADER].mean(),
        "nearest_is_leader": (nearest_policy(kl)[1:] == LEADER).float().mean(),
    }


def _leader_advantage(
    model: ActorCritic, rollout: Rollout, layout: Layout, rows: Tensor, update: UpdateConfig
) -> Tensor:
    """One-step TD errors `[n]` of flat rows by the leader's values, in units of scaled reward."""
    both = torch.cat((rows, rows + layout.num_envs))  # a row and the same environment's next
    obs = {name: x.flatten(0, 1)[both][None] for name, x in rollout.obs.items()}
    start = torch.zeros(1, len(both), dtype=torch.bool, device=rows.device)
    state = rollout.state.flatten(0, 1)[both]
    output = model.evaluate(model.project(obs), layout.ids(LEADER, len(both)), state, start)
    value = model.raw_value(output.value[0]).view(2, -1)
    parts = rollout.trajectory
    flat = (x.flatten(0, 1)[rows][None] for x in (parts.reward, parts.terminated, parts.truncated, parts.final_value))
    return one_step(Trajectory(*flat), value, update.discount)[0]

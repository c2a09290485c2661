"""How far apart the policies of a run are, measured on rows of a rollout at the parameters that collected it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from echelon.diagnostics.divergence import kl_matrix, nearest_policy
from echelon.diagnostics.importance import ess_rate, is_deviation
from echelon.models import gaussian
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import LEADER, Layout


@dataclass
class Distances:
    """Tensors on the device."""

    kl: Tensor
    """`[M, M]` mean KL from row to column, on states of the row's policy."""
    ess: Tensor
    """Effective share of all policies' rows under the leader."""
    is_deviation: Tensor
    """Mean |1 - w| of the followers' rows under the leader."""
    borrows: bool = True
    """Whether the policies are an ensemble. In a population none learns from another's rows: only `kl` is used."""

    def metrics(self) -> dict[str, Tensor]:
        """Scalars for `metrics.jsonl`; the matrix goes to `diagnostics/`."""
        if not self.borrows:
            return {}
        followers = self.kl[1:, LEADER]
        near = (nearest_policy(self.kl)[1:] == LEADER).float().mean()
        return {
            "ess": self.ess,
            "is_deviation": self.is_deviation,
            "kl/follower_to_leader": followers.mean(),
            "nearest_is_leader": near,
        }


@torch.no_grad()
def measure(model: ActorCritic, rollout: Rollout, layout: Layout, states: int) -> Distances:
    """Evaluate every policy on up to `states` rows of each policy's data, spread evenly over environments and steps.

    A recurrent network takes a single step from the collector's stored state. Nothing random is drawn, so measuring
    never changes what is learned. Several ranks share the states between them.
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
    action, behaviour = rollout.action.flatten(0, 1)[rows], rollout.log_prob.flatten(0, 1)[rows]
    log_w = gaussian.log_prob(action, mean[:, LEADER], model.log_std[LEADER]) - behaviour
    kl, deviation = ranks.mean(kl_matrix(mean, model.log_std)), ranks.mean(is_deviation(log_w[1:]))
    return Distances(kl, ess_rate(log_w, ranks), deviation, networks == 1)

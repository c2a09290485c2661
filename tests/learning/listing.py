"""A plan listed in full, evaluation by evaluation: what its tables are compared by."""

import torch
from torch import Tensor

from echelon.learning.plans import Plan
from echelon.models.sharing import DRAWN

OWN, LEADER_BORROWS, FOLLOWER_PULL = "own", "leader_borrows", "follower_pull"


def listing(plan: Plan, drawn: Tensor) -> tuple[Tensor, Tensor, list[str]]:
    """Unit, policy id and group of every evaluation, network after network, each in order: `[G·S]`."""
    layout, chunks = plan.layout, range(plan.chunks)
    units, policies, groups = [], [], []

    def add(policy: int, envs: slice, group: str) -> None:
        for chunk in chunks:
            for env in range(envs.start, envs.stop):
                units.append(chunk * layout.num_envs + env)
                policies.append(policy)
                groups.append(group)

    for network in range(layout.networks):
        first = network * layout.each
        for chunk in chunks:
            for env in range(network * layout.envs, (network + 1) * layout.envs):
                units.append(chunk * layout.num_envs + env)
                policies.append(int(layout.policy_id[env]))
                groups.append(OWN)
        for group in plan.groups[1:]:
            for learner, source in group.pairs(layout.each):
                other = int(drawn[network]) if source == DRAWN else first + source
                add(first + learner, layout.environments(other), group.name)
    return torch.tensor(units), torch.tensor(policies), groups


def where(groups: list[str], *names: str) -> Tensor:
    """A mask over evaluations: those of some groups."""
    return torch.tensor([group in names for group in groups])

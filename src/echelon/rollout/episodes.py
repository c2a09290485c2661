"""Scores of episodes per policy, computed on the device.

An environment's score is that of its last finished episode; a policy's is the mean over its environments that have
finished one. So every environment counts once, however often it falls.
"""

from typing import Any

import torch
from torch import Tensor

from echelon.envs.contract import State, Step
from echelon.errors import UserError
from echelon.rollout.layout import LEADER, Layout

COUNTED = ("quarantined", "overflow")
"""Logged quantities that are totals over all environments rather than means over the leader's."""
KEPT = ("current", "last", "finished", "mixed")
"""Tensors of a checkpoint."""


class Episodes:
    """Totals of current episodes, results of the last ones, and sums over a rollout: `[K, N]` each, a row per name.

    All tensors are updated in place, so that recording can be captured as a CUDA graph.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        device = layout.policy_id.device
        self.names = ["return", "length"]
        """Rows of `last`: what is added up here, then what the task reports under `episode/`."""
        self.step_names: list[str] = []
        """Rows of `sums`: what else the task reports."""
        self.current = torch.zeros(2, layout.num_envs, device=device)
        self.finished = torch.zeros(layout.num_envs, dtype=torch.bool, device=device)
        self.mixed = torch.zeros_like(self.finished)
        """Environments whose current episode is not scored: its policy was replaced in the middle."""
        self._leader = torch.full((1,), LEADER, device=device)
        self.steps = torch.zeros((), device=device)
        """Steps of this rollout."""
        self._allocate()

    def _allocate(self) -> None:
        """Allocate storage for the names that are known; a task's are known after its first step."""
        with torch.inference_mode(False):  # what is made in inference mode could not be loaded into later
            self.last = torch.zeros(len(self.names), self.layout.num_envs, device=self.current.device)
            self.sums = torch.zeros(len(self.step_names), self.layout.num_envs, device=self.current.device)

    def hand_over(self, moved: Tensor) -> None:
        """Note that environments `[N]` have another policy, which has finished no episode there yet."""
        self.mixed |= moved
        self.finished &= ~moved

    def begin(self) -> None:
        """Begin a rollout: per-step quantities are averaged from here."""
        self.sums.zero_()
        self.steps.zero_()

    def record(self, step: Step) -> None:
        """Add one control step of all environments."""
        if step.log and len(self.names) + len(self.step_names) == 2:
            self.names += [name.removeprefix("episode/") for name in step.log if name.startswith("episode/")]
            self.step_names = [name for name in step.log if not name.startswith("episode/")]
            self._allocate()
        done = step.terminated | step.truncated
        self.current += torch.stack((step.reward, torch.ones_like(step.reward)))
        reported = [self._each(step, f"episode/{name}") for name in self.names[2:]]
        totals = torch.cat((self.current, torch.stack(reported))) if reported else self.current
        counts = done & ~self.mixed
        self.last.copy_(torch.where(counts, totals, self.last))
        self.current.masked_fill_(done, 0.0)
        self.finished |= counts
        self.mixed &= ~done
        if self.step_names:
            self.sums += torch.stack([self._each(step, name) for name in self.step_names])
        self.steps += 1

    def _each(self, step: Step, name: str) -> Tensor:
        """The value that the step logged under a name, expanded to `[N]`."""
        x = step.log.get(name)
        if x is None:
            raise UserError(f"the environment logs {name} in some steps but not in others; log it in every one")
        if isinstance(x, Tensor) and (x.ndim or x.is_cuda):
            return x.expand(self.layout.num_envs)
        return torch.full_like(self.current[0], float(x))

    def inherit(self, donor: int, policy: int) -> None:
        """Note that `policy` became a copy of `donor`: it takes the donor's scores until its own episodes end, and its
        current episodes are not scored. Both have equal numbers of environments."""
        theirs, ours = self.layout.environments(donor), self.layout.environments(policy)
        for x in (self.last, self.finished):
            x[..., ours] = x[..., theirs]
        self.mixed[ours] = True

    def objective(self, name: str) -> Tensor:
        """`[M]`: mean of a figure over each policy's environments; NaN until all of them have finished an episode."""
        means = self.layout.policy_means
        mean, unfinished = self.layout.ranks.mean(
            torch.stack((means(self.last[self.names.index(name)]), means(~self.finished)))
        )
        return mean.masked_fill(unfinished > 0, torch.nan)

    def metrics(self, leader: Tensor | None = None) -> dict[str, Tensor]:
        """0-d tensors; NaN for a policy none of whose environments has finished an episode yet.

        `leader` `[1]` names the policy that stands for the run; it is policy 0 unless given.
        """
        leader = self._leader if leader is None else leader
        each, ranks = self.layout.policy_means, self.layout.ranks
        figures = (self.finished, *(self.last * self.finished), *self.sums)
        share, *averages = ranks.mean(torch.stack([each(x) for x in figures])).unbind()
        totals = ranks.sum(self.sums.sum(1))
        result: dict[str, Tensor] = {}
        for name, average in zip(self.names, averages, strict=False):
            means = average / share
            result[f"{name}/leader"] = means.index_select(0, leader)[0]
            if self.layout.policies > 1:
                result |= {f"{name}/policy_{i}": means[i] for i in range(self.layout.policies)}
        for name, average, total in zip(self.step_names, averages[len(self.names) :], totals, strict=True):
            mean = average.index_select(0, leader)[0] / self.steps
            result[f"env/{name}"] = total if name in COUNTED else mean
        return result

    def state_dict(self) -> State:
        return {"names": self.names, "step_names": self.step_names} | {x: getattr(self, x).clone() for x in KEPT}

    def load_state_dict(self, state: Any) -> None:
        names, step_names = list(state["names"]), list(state["step_names"])
        if (names, step_names) != (self.names, self.step_names):
            self.names, self.step_names = names, step_names
            self._allocate()
        for name in KEPT:
            getattr(self, name).copy_(state[name])

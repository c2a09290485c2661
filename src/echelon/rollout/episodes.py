"""Scores of episodes, per policy, without the host looking.

An environment's score is that of its last finished episode; a policy's is the mean over its environments that have
finished one. So every environment counts once, however often it falls.
"""

from typing import Any

import torch
from torch import Tensor

from echelon.envs.contract import State, Step
from echelon.learning.layout import LEADER, Layout

COUNTED = ("quarantined", "overflow")
"""Logged quantities that are totals over all environments rather than means over the leader's."""


class Episodes:
    """Running totals of the current episodes `[N]`, results of the last ones `[N]`, and sums over a rollout."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.zero = torch.zeros(layout.num_envs, device=layout.policy_id.device)
        self.current = {"return": self.zero.clone(), "length": self.zero.clone()}
        self.last: dict[str, Tensor] = {}
        self.finished = torch.zeros_like(self.zero, dtype=torch.bool)
        self.sums: dict[str, Tensor] = {}
        self.steps = 0

    def begin(self) -> None:
        """A new rollout: per-step quantities are averaged from here."""
        self.sums, self.steps = {}, 0

    def record(self, step: Step) -> None:
        """Take in one control step of all environments."""
        done = step.terminated | step.truncated
        self.current["return"] = self.current["return"] + step.reward
        self.current["length"] = self.current["length"] + 1
        totals = dict(self.current)
        for name, x in step.log.items():
            if name.startswith("episode/"):
                totals[name.removeprefix("episode/")] = x.float()
            else:
                self.sums[name] = self.sums.get(name, self.zero) + x
        for name, total in totals.items():
            self.last[name] = torch.where(done, total, self.last.get(name, self.zero))
        for name, total in self.current.items():
            self.current[name] = torch.where(done, 0.0, total)
        self.finished = self.finished | done
        self.steps += 1

    def metrics(self) -> dict[str, Tensor]:
        """0-d tensors; NaN for a policy none of whose environments has finished an episode yet."""
        share = self.layout.policy_means(self.finished)
        result: dict[str, Tensor] = {}
        for name, last in self.last.items():
            means = self.layout.policy_means(torch.where(self.finished, last, 0.0)) / share
            result[f"{name}/leader"] = means[LEADER]
            if self.layout.policies > 1:
                result |= {f"{name}/policy_{i}": means[i] for i in range(self.layout.policies)}
        for name, total in self.sums.items():
            mean = self.layout.policy_means(total)[LEADER] / self.steps
            result[f"env/{name}"] = total.sum() if name in COUNTED else mean
        return result

    def state_dict(self) -> State:
        return {"current": self.current, "last": self.last, "finished": self.finished}

    def load_state_dict(self, state: Any) -> None:
        device = self.zero.device
        self.current = {name: x.to(device) for name, x in state["current"].items()}
        self.last = {name: x.to(device) for name, x in state["last"].items()}
        self.finished = state["finished"].to(device)

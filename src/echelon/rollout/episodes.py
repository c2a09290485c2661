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
    """Totals of current episodes, results of the last ones, and sums over a rollout: `[K, N]` each, a row a name."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        device = layout.policy_id.device
        self.names = ["return", "length"]
        """Rows of `last`: what the collector adds up itself, then what the task reports under `episode/`."""
        self.current = torch.zeros(2, layout.num_envs, device=device)
        self.last = torch.zeros(2, layout.num_envs, device=device)
        self.finished = torch.zeros(layout.num_envs, dtype=torch.bool, device=device)
        self.step_names: list[str] = []
        self.sums = torch.zeros(0, layout.num_envs, device=device)
        self.steps = 0
        self.steps_seen = 0
        """Steps since the run began; `steps` are those of this rollout."""

    def begin(self) -> None:
        """A new rollout: per-step quantities are averaged from here."""
        self.sums = torch.zeros_like(self.sums)
        self.steps = 0

    def record(self, step: Step) -> None:
        """Take in one control step of all environments."""
        if self.steps_seen == 0:
            self._learn_names(step.log)
        self.steps_seen += 1
        done = step.terminated | step.truncated
        self.current = self.current + torch.stack((step.reward, torch.ones_like(step.reward)))
        reported = [step.log[f"episode/{name}"] for name in self.names[2:]]
        totals = torch.cat((self.current, torch.stack(reported))) if reported else self.current
        self.last = torch.where(done, totals, self.last)
        self.current = self.current * ~done
        self.finished = self.finished | done
        if self.step_names:
            self.sums = self.sums + torch.stack([step.log[name] for name in self.step_names])
        self.steps += 1

    def _learn_names(self, log: dict[str, Tensor]) -> None:
        """What the task reports is known from its first step on."""
        self.names += [name.removeprefix("episode/") for name in log if name.startswith("episode/")]
        self.step_names = [name for name in log if not name.startswith("episode/")]
        device, num_envs = self.last.device, self.layout.num_envs
        self.last = torch.zeros(len(self.names), num_envs, device=device)
        self.sums = torch.zeros(len(self.step_names), num_envs, device=device)

    def metrics(self) -> dict[str, Tensor]:
        """0-d tensors; NaN for a policy none of whose environments has finished an episode yet."""
        share = self.layout.policy_means(self.finished)
        result: dict[str, Tensor] = {}
        for name, last in zip(self.names, self.last, strict=True):
            means = self.layout.policy_means(last * self.finished) / share
            result[f"{name}/leader"] = means[LEADER]
            if self.layout.policies > 1:
                result |= {f"{name}/policy_{i}": means[i] for i in range(self.layout.policies)}
        for name, total in zip(self.step_names, self.sums, strict=True):
            mean = self.layout.policy_means(total)[LEADER] / self.steps
            result[f"env/{name}"] = total.sum() if name in COUNTED else mean
        return result

    def state_dict(self) -> State:
        return {
            "steps_seen": self.steps_seen,
            "names": self.names,
            "step_names": self.step_names,
            "current": self.current,
            "last": self.last,
            "finished": self.finished,
        }

    def load_state_dict(self, state: Any) -> None:
        device = self.last.device
        self.steps_seen = state["steps_seen"]
        self.names, self.step_names = list(state["names"]), list(state["step_names"])
        self.current, self.last = state["current"].to(device), state["last"].to(device)
        self.finished = state["finished"].to(device)
        self.sums = torch.zeros(len(self.step_names), self.layout.num_envs, device=device)

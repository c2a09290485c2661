"""FrankaCubePush: slide a cube over the table to a goal, without lifting it.

| | |
|---|---|
| reward | 2 · (1 − tanh 10 e), e: horizontal distance of the cube from the goal in metres |
| success | e < 5 mm: 4 points for each step that is left, instead, and the episode ends |
| end | the cube is lifted, or time is up: −5 · tanh 10 e, instead |

What else it has in common with FrankaCubeStack is in `franka_cube`.
"""

import torch
from torch import Tensor

from echelon.tasks.franka_cube import FrankaCube, closeness
from echelon.tasks.settings import GOAL_CUBE, FrankaCubePushConfig

MOVED = 0.005
"""Distance from its start, in metres, beyond which the cube counts as moved."""


class FrankaCubePush(FrankaCube[FrankaCubePushConfig]):
    """A Franka arm that slides a cube to a goal on the table."""

    scene = "franka_push"
    other_edge = GOAL_CUBE

    def prepare(self) -> None:
        super().prepare()
        self.kept = {"goal": self.zeros(7), "start": self.zeros(2)}
        """Pose of the goal, whose orientation is for display only, and the cube's start position."""
        self.totals = {"moved": self.zeros()}
        self._drawn_goal = self.kept["goal"]

    def other(self) -> Tensor:
        return self.kept["goal"][:, :3]

    def place_other(self, pose: Tensor) -> Tensor:
        self._drawn_goal = pose
        return pose[:, :0]

    def begin(self, mask: Tensor) -> None:
        goal, start = self.kept["goal"], self.kept["start"]
        goal.copy_(torch.where(mask[:, None], self._drawn_goal, goal))
        start.copy_(torch.where(mask[:, None], self.cube()[:, :2], start))
        shown = goal.to(self.engine.mocap_pos.dtype)
        self.engine.mocap_pos[:, 0], self.engine.mocap_quat[:, 0] = shown[:, :3], shown[:, 3:]

    def succeeded(self) -> Tensor:
        return self.aside() < self.config.success_distance

    def failed(self) -> Tensor:
        """Lifting the cube is a failure. Success terminates the episode too, since no more reward follows."""
        return self.succeeded() | self.lifted()

    def reward(self, action: Tensor) -> Tensor:
        config = self.config
        near, reached = closeness(self.aside()), self.succeeded()
        over = (self.lifted() | (self.clock >= self.episode_length)) & ~reached
        left = (self.episode_length + 1 - self.clock).float()
        terms = {
            "align": (config.align_reward * near).masked_fill(reached | over, 0.0),
            "success": config.success_reward * left * reached,
            "end": config.end_cost * (near - 1.0) * over,
        }
        return self.total(terms)

    def figures(self) -> dict[str, Tensor]:
        moved = ((self.cube()[:, :2] - self.kept["start"]).norm(dim=1) > MOVED) & ~self.engine.bad
        self.totals["moved"].copy_(torch.maximum(self.totals["moved"], moved.float()))
        return super().figures() | {"episode/moved": self.totals["moved"]}

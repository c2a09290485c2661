"""FrankaCubeStack: put cube A on cube B and let go of it.

| | |
|---|---|
| reward | 0.1 · reach + 1.5 if lifted + 2 · align |
| reach | 1 − tanh 10 d, d: mean distance of grip point and fingertips from cube A; `align` if that is larger |
| align | 1 − tanh 10 e if cube A is lifted, e: its distance from its place on cube B |
| success | cube A stands on cube B, the grip point 4 cm away: 16, instead, and the episode ends |

What else it has in common with FrankaCubePush is in `franka_cube`.
"""

import torch
from torch import Tensor

from echelon.tasks.franka_cube import FrankaCube, closeness
from echelon.tasks.settings import CUBE_A, CUBE_B, FrankaCubeStackConfig


class FrankaCubeStack(FrankaCube[FrankaCubeStackConfig]):
    """A Franka arm that puts one cube on another."""

    scene = "franka_stack"
    other_edge = CUBE_B

    def prepare(self) -> None:
        super().prepare()
        self.totals = {"lifted": self.zeros()}
        """1 once cube A was lifted."""
        self._above = self.constant((0.0, 0.0, 0.5 * (CUBE_A + CUBE_B)))

    def other(self) -> Tensor:
        return self.engine.qpos[:, 7:10].float()

    def place_other(self, pose: Tensor) -> Tensor:
        return pose

    def succeeded(self) -> Tensor:
        """The height is measured from the table, as in the original, so cube B must stand on it."""
        config = self.config
        high = (self.height() - (CUBE_B + 0.5 * CUBE_A)).abs() < config.stack_tolerance
        released = (self.cube() - self.grip()).norm(dim=1) > config.release_distance
        return (self.aside() < config.stack_tolerance) & high & released

    def failed(self) -> Tensor:
        """Only success ends an episode before the time limit, since no more reward follows."""
        return self.succeeded()

    def reward(self, action: Tensor) -> Tensor:
        config, cube, lifted, stacked = self.config, self.cube(), self.lifted(), self.succeeded()
        distance = (torch.stack((self.grip(), *self.tips())) - cube).norm(dim=2).mean(dim=0)
        align = closeness((self.other() + self._above - cube).norm(dim=1)) * lifted
        reach = torch.maximum(closeness(distance), align)
        terms = {
            "reach": config.reach_reward * reach * ~stacked,
            "lift": config.lift_reward * (lifted & ~stacked),
            "align": config.align_reward * align * ~stacked,
            "stack": config.stack_reward * stacked,
        }
        return self.total(terms)

    def figures(self) -> dict[str, Tensor]:
        figures = super().figures()
        lifted = self.totals["lifted"]
        lifted.copy_(torch.maximum(lifted, figures["lifted"]))
        return figures | {"episode/lifted": lifted}

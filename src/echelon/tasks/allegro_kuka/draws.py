"""Random start and goal poses of the object."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from echelon.tasks.allegro_kuka.objects import EDGE
from echelon.tasks.allegro_kuka.scene import TABLE_TOP, Volume, Workplace
from echelon.tasks.chance import Chance

CLEARANCE = 0.002
"""Between the table and an object's lowest corner at a start, in metres."""
BUCKET_DEPTH = 0.05
"""Height of a goal's point above the bucket's underside, in metres."""


class Draws:
    """Draws poses for all environments by the task's chance. `scales [N, 3]` are those of the objects."""

    def __init__(self, place: Workplace, scales: Tensor, turned_goals: bool, chance: Chance) -> None:
        device = scales.device
        self.scales, self.turned_goals, self.chance = scales, turned_goals, chance
        self._starts, self._goals = (_Drawn(volume, device) for volume in (place.object_starts, place.goals))
        self._upright = torch.tensor([1.0, 0.0, 0.0, 0.0], device=device)
        depth = BUCKET_DEPTH if place.marker == "bucket" else 0.0
        self.above_marker = torch.tensor([0.0, 0.0, depth], device=device)
        """Offset of the goal from its marker."""

    def starts(self) -> Tensor:
        """`[N, 7]`: object poses with random orientations, high enough to clear the table."""
        position, orientation = self._starts.draw(self.chance), self._orientations()
        w, x, y, z = orientation.unbind(1)
        upwards = torch.stack((2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)), dim=1)
        extent = 0.5 * EDGE * (upwards.abs() * self.scales).sum(dim=1)
        position[:, 2] = torch.maximum(position[:, 2], TABLE_TOP + CLEARANCE + extent)
        return torch.cat((position, orientation), dim=1)

    def goals(self) -> tuple[Tensor, Tensor]:
        """Positions `[N, 3]` and orientations `[N, 4]`; upright if a goal is only a point."""
        place = self._goals.draw(self.chance) + self.above_marker
        return place, self._orientations() if self.turned_goals else self._upright.expand(len(place), 4)

    def _orientations(self) -> Tensor:
        """`[N, 4]`: random orientations, uniform over all rotations."""
        return normalize(self.chance.normal(4), dim=1)


class _Drawn:
    """A `Volume` as tensors, to draw from."""

    def __init__(self, volume: Volume, device: torch.device) -> None:
        self.low, self.high = (torch.tensor(bound, device=device) for bound in (volume.low, volume.high))
        self.side = volume.side

    def draw(self, chance: Chance) -> Tensor:
        """`[N, 3]`: random positions, on either side."""
        shares = chance.uniform(0.0, 1.0, 4)
        place = self.low + (self.high - self.low) * shares[:, :3]
        place[:, 0] += self.side * torch.where(shares[:, 3] < 0.5, -1.0, 1.0)
        return place

"""Start poses of the object, and its goals: a point, or a pose given by four keypoints."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from echelon.tasks import rotations
from echelon.tasks.allegro_kuka.objects import EDGE
from echelon.tasks.allegro_kuka.reward import NEAR
from echelon.tasks.allegro_kuka.scene import TABLE_TOP, Workplace
from echelon.tasks.rng import Rng

CORNERS = ((1.0, 1.0, 1.0), (1.0, 1.0, -1.0), (-1.0, -1.0, 1.0), (-1.0, -1.0, -1.0))
CLEARANCE = 0.002
"""Between the table and an object's lowest corner at a start, in metres."""
BUCKET_DEPTH = 0.05
"""Height of a goal's point above the bucket's underside, in metres."""


class Keypoints:
    """`K` keypoints per object: its centre, or four corners of the cuboid enlarged by 1.5."""

    def __init__(self, scales: Tensor, count: int) -> None:
        corners = torch.tensor(CORNERS if count == len(CORNERS) else [(0.0, 0.0, 0.0)], device=scales.device)
        self.count = len(corners)
        self.offsets = 0.5 * NEAR * EDGE * corners * scales[:, None]
        """`[N, K, 3]`, in the object's frame."""

    def at(self, position: Tensor, orientation: Tensor) -> Tensor:
        """`[N, K, 3]`: keypoints of objects at `position [N, 3]` with `orientation [N, 4]`, w x y z."""
        per_keypoint = orientation[:, None].expand(-1, self.count, -1).flatten(0, 1)
        return position[:, None] + rotations.to_world(per_keypoint, self.offsets.flatten(0, 1)).unflatten(
            0, (-1, self.count)
        )


class Goals:
    """The goal pose of each environment, updated in place."""

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.position = torch.zeros(num_envs, 3, device=device)
        self.orientation = torch.zeros(num_envs, 4, device=device)
        """w x y z."""

    def change(self, mask: Tensor, position: Tensor, orientation: Tensor) -> None:
        """Set new goals in the environments of `mask [N]`."""
        self.position.copy_(torch.where(mask[:, None], position, self.position))
        self.orientation.copy_(torch.where(mask[:, None], orientation, self.orientation))


class Draws:
    """Draws poses for all environments with the task's generator. `scales [N, 3]` are those of the objects."""

    def __init__(self, place: Workplace, scales: Tensor, turned_goals: bool, rng: Rng) -> None:
        device = scales.device
        self.scales, self.turned_goals, self.rng = scales, turned_goals, rng
        self._starts, self._goals = (
            (torch.tensor(volume.low, device=device), torch.tensor(volume.high, device=device), volume.side)
            for volume in (place.object_starts, place.goals)
        )
        self._upright = torch.tensor([1.0, 0.0, 0.0, 0.0], device=device)
        depth = BUCKET_DEPTH if place.marker == "bucket" else 0.0
        self.above_marker = torch.tensor([0.0, 0.0, depth], device=device)
        """Offset of the goal from its marker."""

    def starts(self) -> Tensor:
        """`[N, 7]`: object poses with random orientations, high enough to clear the table."""
        position, orientation = self._positions(*self._starts), self._orientations()
        w, x, y, z = orientation.unbind(1)
        upwards = torch.stack((2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)), dim=1)
        extent = 0.5 * EDGE * (upwards.abs() * self.scales).sum(dim=1)
        position[:, 2] = torch.maximum(position[:, 2], TABLE_TOP + CLEARANCE + extent)
        return torch.cat((position, orientation), dim=1)

    def goals(self) -> tuple[Tensor, Tensor]:
        """Positions `[N, 3]` and orientations `[N, 4]`; upright if a goal is only a point."""
        place = self._positions(*self._goals) + self.above_marker
        return place, self._orientations() if self.turned_goals else self._upright.expand(len(place), 4)

    def _orientations(self) -> Tensor:
        """`[N, 4]`: random orientations, uniform over all rotations."""
        return normalize(self.rng.normal(4), dim=1)

    def _positions(self, low: Tensor, high: Tensor, side: float) -> Tensor:
        """`[N, 3]`: random positions in a `Volume`, on either side."""
        shares = self.rng.uniform(0.0, 1.0, 4)
        place = low + (high - low) * shares[:, :3]
        place[:, 0] += side * torch.where(shares[:, 3] < 0.5, -1.0, 1.0)
        return place

"""Goals of the object: a point, or a pose given by four keypoints."""

import torch
from torch import Tensor

from echelon.tasks import attitude
from echelon.tasks.allegro_kuka.objects import EDGE
from echelon.tasks.allegro_kuka.reward import NEAR

CORNERS = ((1.0, 1.0, 1.0), (1.0, 1.0, -1.0), (-1.0, -1.0, 1.0), (-1.0, -1.0, -1.0))


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
        return position[:, None] + attitude.to_world(per_keypoint, self.offsets.flatten(0, 1)).unflatten(
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

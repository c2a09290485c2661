"""AllegroHand: turn a cube of 6.5 cm to one orientation after the other on the Allegro hand, at 30 Hz.

Goals and rewards are in `in_hand`. Observation, 88 numbers:

| columns | content |
|---|---|
| 0–15 | joint angles, [-1, 1] is each joint's range; index, middle, ring, thumb |
| 16–31 | joint velocities [rad/s], times 0.2 |
| 32–47 | servo torques [N m], times 10 |
| 48–54 | the cube's position [m] and quaternion x y z w |
| 55–60 | its linear velocity [m/s] and angular velocity [rad/s, times 0.2], in the world's frame |
| 61–67 | the goal's position and quaternion |
| 68–71 | quaternion from the goal to the cube |
| 72–87 | the last action |
"""

from typing import ClassVar

from echelon.tasks.in_hand import Hand, InHand
from echelon.tasks.settings import AllegroHandConfig


class AllegroHand(InHand[AllegroHandConfig]):
    """A 6.5 cm cube on the Allegro hand, to be turned to one goal orientation after another."""

    substeps = 4
    hand: ClassVar[Hand] = Hand(
        scene="allegro_cube",
        joints=tuple(f"hand/{finger}_joint_{i}" for finger in ("index", "middle", "ring", "thumb") for i in range(4)),
        cube_start=(0.0, -0.2, 0.56),
        goal_position=(0.0, -0.2, 0.52),
    )

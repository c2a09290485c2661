"""ShadowHand: turn a cube of 5 cm to one orientation after the other on the Shadow hand, at 60 Hz.

Goals and rewards are in `in_hand`. Observation, 211 numbers:

| columns | content |
|---|---|
| 0–23 | joint angles, [-1, 1] is each joint's range; wrist, first, middle, ring, little finger, thumb |
| 24–47 | joint velocities [rad/s], times 0.2 |
| 48–71 | servo torques [N m], times 10; zero at the four joints that only follow by a tendon |
| 72–78 | the cube's position [m] and quaternion x y z w |
| 79–84 | its linear velocity [m/s] and angular velocity [rad/s, times 0.2], in the world's frame |
| 85–91 | the goal's position and quaternion |
| 92–95 | quaternion from the goal to the cube |
| 96–160 | of each last finger link: position, quaternion x y z w, linear and angular velocity |
| 161–190 | of each last finger link: force [N] and torque [N m] on it, in its frame, times 10 |
| 191–210 | the last action |
"""

from typing import ClassVar

from echelon.tasks.in_hand import Hand, InHand
from echelon.tasks.settings import ShadowHandConfig

FINGERS = {"WR": "10", "FF": "3210", "MF": "3210", "RF": "3210", "LF": "43210", "TH": "43210"}
"""Joint numbers of the wrist and of each finger, from the arm outwards."""


class ShadowHand(InHand[ShadowHandConfig]):
    """A 5 cm cube on the Shadow hand, to be turned to one goal orientation after another."""

    substeps = 3
    hand: ClassVar[Hand] = Hand(
        scene="shadow_hand",
        joints=tuple(f"{finger}J{number}" for finger, numbers in FINGERS.items() for number in numbers),
        cube_start=(0.0, -0.39, 0.60),
        goal_position=(0.0, -0.39, 0.56),
        tips=("ffdistal", "mfdistal", "rfdistal", "lfdistal", "thdistal"),
    )

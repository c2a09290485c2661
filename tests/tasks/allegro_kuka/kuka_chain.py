"""Kinematics and joint ranges of the iiwa 7 and of the Allegro hand, by their fact tables, without MuJoCo."""

import math

import numpy as np
from tasks.frames import Frame, Z, placed, turn

# Joints turn about z.
PI, HALF = math.pi, math.pi / 2
ARM: list[Frame] = [
    ((0, 0, 0.15), (0, 0, 0)),
    ((0, 0, 0.19), (HALF, 0, PI)),
    ((0, 0.21, 0), (HALF, 0, PI)),
    ((0, 0, 0.19), (HALF, 0, 0)),
    ((0, 0.21, 0), (-HALF, PI, 0)),
    ((0, 0.0607, 0.19), (HALF, 0, 0)),
    ((0, 0.081, 0.0607), (-HALF, PI, 0)),
]
PALM: list[Frame] = [((0, 0, 0.071), (0, 0, 0)), ((0.008219, -0.02063, 0.08086), (0, -HALF, PI / 4))]
REST: list[Frame] = [((0, 0, 0), (PI, -HALF, HALF)), ((0.054, 0, 0), (0, 0, 0)), ((0.0384, 0, 0), (0, 0, 0))]
FINGERS: dict[str, list[Frame]] = {
    "index": [((0.05143, -0.03632, -0.0113), (PI, -HALF, -0.08726)), *REST],
    "middle": [((0.053738, 0.008777, -0.0113), (PI, -HALF, 0)), *REST],
    "ring": [((0.05143, 0.053875, -0.0113), (PI, -HALF, 0.08726)), *REST],
    "thumb": [
        ((-0.036748, -0.008128, -0.0295), (-HALF, -HALF, 1.48349)),
        ((0.005, 0, 0), (HALF, 0, 0)),
        ((0, 0, 0.0554), (PI, -HALF, 0)),
        ((0.0514, 0, 0), (0, 0, 0)),
    ],
}
FLEX = (-0.27924, 1.72782)
HAND_LIMITS = [*[(-0.55849, 0.55849), FLEX, FLEX, FLEX] * 3, (0.27924, 1.57075), (-0.3316, 1.15188), FLEX]
HAND_LIMITS += [(-0.27924, 1.76273)]
ARM_LIMITS = [*[(-2.96706, 2.96706), (-2.0944, 2.0944)] * 3, (-3.05433, 3.05433)]
DEFAULT = (-1.571, 1.571, 0.0, 1.376, 0.0, 1.485, 2.358)
REFERENCE = dict.fromkeys(("index", "middle", "ring"), (0.05, 0.005, 0.0)) | {"thumb": (0.06, 0.005, 0.0)}


def last_link(angles: np.ndarray) -> np.ndarray:
    """`[4, 4]`: the base from link 7, by the chain of the fact table."""
    matrix = np.eye(4)
    for frame, angle in zip(ARM, angles[:7], strict=True):
        matrix = matrix @ placed(frame) @ turn(Z, angle)
    return matrix


def fingertip(finger: str, angles: np.ndarray) -> np.ndarray:
    """Where the chain puts the reference point of a finger, in the base's frame."""
    matrix = last_link(angles)
    for frame in PALM:
        matrix = matrix @ placed(frame)
    first = 7 + 4 * list(FINGERS).index(finger)
    for frame, angle in zip(FINGERS[finger], angles[first : first + 4], strict=True):
        matrix = matrix @ placed(frame) @ turn(Z, angle)
    return (matrix @ [*REFERENCE[finger], 1.0])[:3]

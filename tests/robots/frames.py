"""Frames and inertias as fact tables give them, and as a compiled model has them."""

import math

import mujoco
import numpy as np

Frame = tuple[tuple[float, float, float], tuple[float, float, float]]
"""Origin [m] and roll, pitch, yaw [rad] in the parent: R = Rz(yaw) Ry(pitch) Rx(roll)."""


def turn(axis: int, angle: float) -> np.ndarray:
    """`[4, 4]`: rotation about a coordinate axis."""
    one, two = (axis + 1) % 3, (axis + 2) % 3
    matrix = np.eye(4)
    matrix[one, one] = matrix[two, two] = math.cos(angle)
    matrix[two, one], matrix[one, two] = math.sin(angle), -math.sin(angle)
    return matrix


def placed(frame: Frame) -> np.ndarray:
    """`[4, 4]`: parent from child."""
    position, (roll, pitch, yaw) = frame
    matrix = turn(2, yaw) @ turn(1, pitch) @ turn(0, roll)
    matrix[:3, 3] = position
    return matrix


def inertia(xx: float, yy: float, zz: float, xy: float = 0.0, xz: float = 0.0, yz: float = 0.0) -> np.ndarray:
    """`[3, 3]`: a table's moments and products."""
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def inertia_of(model: mujoco.MjModel, name: str) -> np.ndarray:
    """`[3, 3]`: about the body's centre of mass, in the body's frame. MuJoCo keeps it by its principal axes."""
    body, frame = model.body(name), np.zeros(9)
    mujoco.mju_quat2Mat(frame, body.iquat)
    axes = frame.reshape(3, 3)
    return axes @ np.diag(body.inertia) @ axes.T

"""Frames and inertias as fact tables give them, and as a compiled model has them."""

import math

import mujoco
import numpy as np

Frame = tuple[tuple[float, float, float], tuple[float, float, float]]
"""Origin [m] and roll, pitch, yaw [rad] in the parent: R = Rz(yaw) Ry(pitch) Rx(roll)."""


Vector = tuple[float, ...]
X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def turn(axis: Vector, angle: float) -> np.ndarray:
    """`[4, 4]`: Rodrigues' rotation about an axis."""
    x, y, z = np.array(axis) / np.linalg.norm(axis)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    matrix = np.eye(4)
    matrix[:3, :3] += np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    return matrix


def moved(position: Vector) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, 3] = position
    return matrix


def placed(frame: Frame) -> np.ndarray:
    """`[4, 4]`: parent from child."""
    position, (roll, pitch, yaw) = frame
    return moved(position) @ turn(Z, yaw) @ turn(Y, pitch) @ turn(X, roll)


def placed_by_quat(position: Vector, quat: Vector) -> np.ndarray:
    """`[4, 4]`: parent from child, by a quaternion w x y z."""
    w, *axis = quat
    return moved(position) @ (turn(tuple(axis), 2 * math.atan2(math.hypot(*axis), w)) if any(axis) else np.eye(4))


def inertia(xx: float, yy: float, zz: float, xy: float = 0.0, xz: float = 0.0, yz: float = 0.0) -> np.ndarray:
    """`[3, 3]`: a table's moments and products."""
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def inertia_of(model: mujoco.MjModel, name: str) -> np.ndarray:
    """`[3, 3]`: about the body's centre of mass, in the body's frame. MuJoCo keeps it by its principal axes."""
    body, frame = model.body(name), np.zeros(9)
    mujoco.mju_quat2Mat(frame, body.iquat)
    axes = frame.reshape(3, 3)
    return axes @ np.diag(body.inertia) @ axes.T


def check_rests(model: mujoco.MjModel, pose: np.ndarray, ctrl: np.ndarray, steps: int, atol: float) -> None:
    """Held in a pose it stays there, and nothing touches."""
    data = mujoco.MjData(model)
    data.qpos[:], data.ctrl[:] = pose, ctrl
    for _ in range(steps):
        mujoco.mj_step(model, data)
        assert data.ncon == 0
    np.testing.assert_allclose(data.qpos, pose, atol=atol)

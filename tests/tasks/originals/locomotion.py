"""Humanoid and Anymal as the fact sheets write them."""

from typing import Any

import numpy as np
import torch
from tasks.originals.watch import Array, Moment, around, conjugate, nearby, rotate, some, unscale, xyzw
from tasks.robots import TABLES

LEG, ARM = [(-45, 15), (-60, 35), (-120, 45), (-160, 2), (-50, 50), (-50, 50)], [(-90, 70), (-90, 70), (-90, 50)]
LIMITS = np.radians([(-45, 45), (-75, 30), (-35, 35), *LEG * 2, *ARM * 2])
EFFORT = np.array([row[0] for row in TABLES["humanoid"]["servos"].values()])
DAMPER, _, SPRING = np.array([row[4:7] for row in TABLES["humanoid"]["joints"].values()], float).T
DT = 0.0166


class HumanoidOriginal:
    """Keeps the positions of the step before, which progress is measured from."""

    def __init__(self, before: Array) -> None:
        self.before = before

    def __call__(self, seen: Moment) -> tuple[list[Array], dict[str, Array]]:
        obs = self.torso_and_joints(seen)
        up, heading, joints, speeds = obs[:, 10], obs[:, 11], obs[:, 12:33], obs[:, 33:54]

        def potential(place: Array) -> Array:
            return -np.hypot(1000 - place[:, 0], place[:, 1]) / DT

        strength, action = EFFORT / 135, seen.action
        beyond = np.maximum(np.abs(joints) - 0.98, 0)
        terms = {
            "progress": potential(seen.qpos[:, :2]) - potential(self.before),
            "alive": np.full(len(obs), 2.0),
            "up": 0.1 * (up > 0.93),
            "heading": np.where(heading > 0.8, 0.5, 0.5 * heading / 0.8),
            "action": -0.01 * np.sum(action**2, axis=1),
            "energy": -0.05 * np.sum(np.abs(action * speeds) * strength, axis=1),
            "limits": -np.sum(0.25 * beyond / 0.02 * strength, axis=1),
        }
        assert seen.after is not None
        self.before = seen.after.qpos[:, :2].copy()
        fallen = seen.qpos[:, 2] < 0.8
        terms = {name: np.where(fallen, 0.0, term) for name, term in terms.items()} | {"fall": -1.0 * fallen}
        flags = {"flag: terminated": fallen, "flag: fell": fallen, "flag: truncated": (seen.clock >= 1000) & ~fallen}
        forces = EFFORT * seen.action - SPRING * seen.qpos[:, 7:] - DAMPER * seen.qvel[:, 6:]
        wrenches = [seen.sensor(f"{side}_foot_{kind}") for side in ("right", "left") for kind in ("force", "torque")]
        return [obs, 0.01 * forces, *(0.01 * wrench for wrench in wrenches), seen.action], terms | flags

    @staticmethod
    def torso_and_joints(seen: Moment) -> Array:
        """Columns 0 to 53."""
        place, quat = seen.qpos[:, :3], xyzw(seen.qpos[:, 3:7])
        x, y, z, w = quat.T
        yaw = np.arctan2(2 * (w * z + x * y), w * w + x * x - y * y - z * z)
        roll = np.arctan2(2 * (w * x + y * z), w * w - x * x - y * y + z * z)
        way = np.stack((1000 - place[:, 0], -place[:, 1]), axis=1)
        bearing = np.arctan2(way[:, 1], way[:, 0]) - yaw  # with y, where the original has a slip
        heading = np.sum(rotate(quat, np.eye(3)[0])[:, :2] * way, axis=1) / np.linalg.norm(way, axis=1)
        up = rotate(quat, np.eye(3)[2])[:, 2]
        velocity = rotate(conjugate(quat), seen.qvel[:, :3])
        bearing = np.mod(bearing + np.pi, 2 * np.pi) - np.pi
        parts = (place[:, 2], *velocity.T, *0.25 * seen.qvel[:, 3:6].T, yaw, roll, bearing, up, heading)
        return np.concatenate(
            (np.stack(parts, axis=1), unscale(seen.qpos[:, 7:], LIMITS), 0.1 * seen.qvel[:, 6:]), axis=1
        )


STANCE = np.array([0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, 0.4, -0.8, -0.03, -0.4, 0.8])
THIGHS = ("LF_THIGH", "LH_THIGH", "RF_THIGH", "RH_THIGH")


def anymal(seen: Moment, world_frame: bool) -> tuple[list[Array], dict[str, Array]]:
    quat, command = xyzw(seen.qpos[:, 3:7]), seen.kept["command"]
    velocity = rotate(conjugate(quat), seen.qvel[:, :3])
    error = np.sum((command[:, :2] - velocity[:, :2]) ** 2, axis=1)
    torque = np.concatenate([seen.sensor(seen.model.actuator(i).name) for i in range(12)], axis=1)
    touched = np.concatenate([seen.sensor(name) for name in ("base", *THIGHS)], axis=1).max(axis=1) > 1.0
    terms = {
        "linear": 0.02 * np.exp(-error / 0.25),
        "angular": 0.01 * np.exp(-((command[:, 2] - seen.qvel[:, 5]) ** 2) / 0.25),
        "torque": -5e-7 * np.sum(torque**2, axis=1),
        "flag: terminated": touched,
        "flag: fell": touched,
        "flag: truncated": (seen.clock >= 2500) & ~touched,
    }
    gravity = rotate(quat if world_frame else conjugate(quat), (0, 0, -1))  # the original turns it the wrong way
    parts = [2 * velocity, 0.25 * seen.qvel[:, 3:6], gravity, command * (2, 2, 0.25)]
    parts += [seen.qpos[:, 7:] - STANCE, 0.05 * seen.qvel[:, 6:], seen.action]
    return [np.clip(part, -5, 5) for part in parts], terms


def disturb(env: Any, generator: torch.Generator) -> None:
    """Tilted, turned, higher or lower, moving."""
    qpos, qvel = env.engine.qpos.clone(), env.engine.qvel.clone()
    qpos[:, :2] = around(env, generator, (50.0, 0.0), 60.0)
    qpos[:, 2:3] = around(env, generator, qpos[:, 2:3], 0.4)
    qpos[:, 3:7] = nearby(env, generator, qpos[:, 3:7], 1.5)
    qvel[:, :6] = around(env, generator, qvel[:, :6], 2.0)
    mask = some(env, generator, 0.1)
    env.engine.set_state(mask, qpos, qvel)

"""ShadowHand and AllegroHand as the fact sheets write them."""

from typing import Any

import numpy as np
import torch
from tasks.in_hand.states import Hand
from tasks.originals.maths import Array, conjugate, product, rotate, unscale, xyzw
from tasks.originals.watch import Moment, around, directions, nearby, some

TIPS = ("ffdistal", "mfdistal", "rfdistal", "lfdistal", "thdistal")
KP = {"ShadowHand": np.array([5.0, 5.0] + [1.0] * 18), "AllegroHand": np.full(16, 3.0)}
KD = {"ShadowHand": 0.0, "AllegroHand": 0.1}
WRIST_TORQUE, FINGER_TORQUE, THUMB_TORQUE = [4.785, 2.175], [0.9, 0.9, 0.7245], [2.3722, 1.45, 0.99, 0.99, 0.81]
TORQUE = {
    "ShadowHand": np.array([*WRIST_TORQUE, *FINGER_TORQUE * 3, 0.9, *FINGER_TORQUE, *THUMB_TORQUE]),
    "AllegroHand": np.full(16, 0.5),
}


def split(hand: Hand, seen: Moment) -> tuple[Array, Array, Array, Array]:
    """Angles and speeds of the joints, pose and velocity of the cube."""
    count = len(hand.limits)
    if hand.task == "ShadowHand":
        return seen.qpos[:, :count], seen.qvel[:, :count], seen.qpos[:, count:], seen.qvel[:, count:]
    return seen.qpos[:, 7:], seen.qvel[:, 6:], seen.qpos[:, :7], seen.qvel[:, :6]


def to_goal(pose: Array, goal: Array) -> Array:
    return product(xyzw(pose[:, 3:]), conjugate(goal))


def reward(hand: Hand, seen: Moment) -> dict[str, Array]:
    pose, goal = split(hand, seen)[2], xyzw(seen.kept["goal"])
    distance = np.linalg.norm(pose[:, :3] - hand.goal.numpy(), axis=1)
    angle = 2 * np.arcsin(np.minimum(1.0, np.linalg.norm(to_goal(pose, goal)[:, :3], axis=1)))
    return {
        "distance": -10 * distance,
        "rotation": 1 / (np.abs(angle) + 0.1),
        "action": -0.0002 * np.sum(seen.action**2, axis=1),
        "success": 250.0 * (np.abs(angle) <= 0.1),
        "drop": 0.0 * distance,
        "flag: terminated": distance >= 0.24,
        "flag: truncated": (seen.clock >= 599) & (distance < 0.24),
    }


def observation(hand: Hand, seen: Moment) -> list[Array]:
    joints, speeds, pose, velocity = split(hand, seen)
    count, goal = len(pose), xyzw(seen.kept["goal"])
    driven = hand.driven
    torques = np.zeros_like(joints)
    wanted = KP[hand.task] * (seen.ctrl - joints[:, driven]) - KD[hand.task] * speeds[:, driven]
    torques[:, driven] = np.clip(wanted, -TORQUE[hand.task], TORQUE[hand.task])
    turning = rotate(xyzw(pose[:, 3:]), velocity[:, 3:])
    parts = [unscale(joints, hand.limits.double().numpy()), 0.2 * speeds, 10 * torques, pose[:, :3], xyzw(pose[:, 3:])]
    parts += [velocity[:, :3], 0.2 * turning, np.tile(hand.goal, (count, 1)), goal, to_goal(pose, goal)]
    if hand.task == "ShadowHand":
        parts += [part for tip in TIPS for part in seen.body(tip)]
        parts += [10 * seen.sensor(f"{tip}_{kind}") for tip in TIPS for kind in ("force", "torque")]
    return [np.clip(part, -5, 5) for part in (*parts, seen.action)]


def disturb(env: Any, generator: torch.Generator) -> None:
    """Goals near the cube's orientation, cubes away from their place."""
    qpos, cube = env.engine.qpos.clone(), env.cube[0]
    close = nearby(env, generator, qpos[:, cube][:, 3:], 0.15).float()
    env.kept["goal"].copy_(torch.where(some(env, generator)[:, None], close, env.kept["goal"]))
    place = around(env, generator, env._goal_position, 0.2)
    qpos[:, cube] = torch.cat((place, directions(env, generator)), dim=1)
    env.engine.set_state(some(env, generator, 0.05), qpos, env.engine.qvel.clone())

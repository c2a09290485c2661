"""ShadowHand and AllegroHand as the fact sheets write them."""

from typing import Any

import numpy as np
import torch
from tasks.in_hand.states import Hand
from tasks.originals.watch import (
    Array,
    Moment,
    around,
    conjugate,
    directions,
    nearby,
    product,
    rotate,
    some,
    unscale,
    xyzw,
)
from tasks.robots import TABLES

TIPS = ("ffdistal", "mfdistal", "rfdistal", "lfdistal", "thdistal")


def split(hand: Hand, seen: Moment) -> tuple[Array, Array, Array, Array]:
    """Angles and speeds of the joints, pose and velocity of the cube."""
    count = len(hand.limits)
    if hand.task == "ShadowHand":
        return seen.qpos[:, :count], seen.qvel[:, :count], seen.qpos[:, count:], seen.qvel[:, count:]
    return seen.qpos[:, 7:], seen.qvel[:, 6:], seen.qpos[:, :7], seen.qvel[:, :6]


def original(hand: Hand, seen: Moment) -> tuple[list[Array], dict[str, Array]]:
    joints, speeds, pose, velocity = split(hand, seen)
    goal, driven = xyzw(seen.kept["goal"]), hand.driven
    to_goal = product(xyzw(pose[:, 3:]), conjugate(goal))
    distance = np.linalg.norm(pose[:, :3] - hand.goal.numpy(), axis=1)
    angle = 2 * np.arcsin(np.minimum(1.0, np.linalg.norm(to_goal[:, :3], axis=1)))
    terms = {
        "distance": -10 * distance,
        "rotation": 1 / (np.abs(angle) + 0.1),
        "action": -0.0002 * np.sum(seen.action**2, axis=1),
        "success": 250.0 * (np.abs(angle) <= 0.1),
        "drop": 0.0 * distance,
        "flag: terminated": distance >= 0.24,
        "flag: truncated": (seen.clock >= 599) & (distance < 0.24),
    }
    torques = np.zeros_like(joints)
    servos = TABLES["shadow_hand" if hand.task == "ShadowHand" else "allegro_hand"]["servos"]
    _, stiffness, *_, damping, _, _, low, high = np.array([*servos.values()], float).T
    wanted = stiffness * (seen.ctrl - joints[:, driven]) + damping * speeds[:, driven]
    torques[:, driven] = np.clip(wanted, low, high)
    turning = rotate(xyzw(pose[:, 3:]), velocity[:, 3:])
    parts = [unscale(joints, hand.limits.double().numpy()), 0.2 * speeds, 10 * torques, pose[:, :3], xyzw(pose[:, 3:])]
    parts += [velocity[:, :3], 0.2 * turning, np.tile(hand.goal, (len(pose), 1)), goal, to_goal]
    if hand.task == "ShadowHand":
        parts += [part for tip in TIPS for part in seen.body(tip)]
        parts += [10 * seen.sensor(f"{tip}_{kind}") for tip in TIPS for kind in ("force", "torque")]
    return [np.clip(part, -5, 5) for part in (*parts, seen.action)], terms


def disturb(env: Any, generator: torch.Generator) -> None:
    """Goals near the cube's orientation, cubes away from their place."""
    qpos, cube = env.engine.qpos.clone(), env.cube[0]
    close = nearby(env, generator, qpos[:, cube][:, 3:], 0.15).float()
    env.kept["goal"].copy_(torch.where(some(env, generator)[:, None], close, env.kept["goal"]))
    place = around(env, generator, env._goal_position, 0.2)
    qpos[:, cube] = torch.cat((place, directions(env, generator)), dim=1)
    env.engine.set_state(some(env, generator, 0.05), qpos, env.engine.qvel.clone())

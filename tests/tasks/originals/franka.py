"""FrankaCubePush and FrankaCubeStack as the fact sheet writes them."""

from typing import Any

import numpy as np
import torch
from tasks.originals.watch import Array, Moment, around, directions, rotate, some, xyzw

TABLE = 1.025


def gripper(seen: Moment) -> tuple[Array, Array, Array, Array]:
    """Grip point, its quaternion, left and right fingertip."""
    hand, quat, *_ = seen.body("panda/hand")
    fingers, none = seen.qpos[:, -2:] + 0.0015, np.zeros(len(hand))
    offsets = [np.stack((none, y, none + 0.1025), axis=1) for y in (fingers[:, 0], -fingers[:, 1])]
    left, right = (hand + rotate(quat, offset) for offset in offsets)
    return hand + rotate(quat, (0.0, 0.0, 0.1025)), quat, left, right


def other(seen: Moment) -> Array:
    return seen.kept["goal"][:, :3] if "goal" in seen.kept else seen.qpos[:, 7:10]


def observation(seen: Moment) -> list[Array]:
    grip, quat, *_ = gripper(seen)
    cube = seen.qpos[:, :7]
    parts = (xyzw(cube[:, 3:]), cube[:, :3], other(seen) - cube[:, :3], grip, quat, seen.qpos[:, -2:])
    return [np.clip(part, -5, 5) for part in parts]


def closeness(distance: Array) -> Array:
    return 1 - np.tanh(10 * distance)


def lifted(seen: Moment) -> Array:
    return seen.qpos[:, 2] - TABLE - 0.05 > 0.04


def push(seen: Moment) -> dict[str, Array]:
    error = np.linalg.norm((other(seen) - seen.qpos[:, :3])[:, :2], axis=1)
    success, time = error < 0.005, seen.clock
    failed = ((time >= 299) | lifted(seen)) & ~success
    return {
        "align": np.where(success | failed, 0.0, 2 * closeness(error)),
        "success": np.where(success, 2 * (300 - time) * 2.0, 0.0),
        "end": np.where(failed, 5 * (closeness(error) - 1), 0.0),
        "flag: terminated": success | lifted(seen),
        "flag: truncated": (time >= 299) & ~success & ~lifted(seen),
        "flag: success": success,
    }


def stack(seen: Moment) -> dict[str, Array]:
    cube, base = seen.qpos[:, :3], other(seen)
    grip, _, left, right = gripper(seen)
    height, up = cube[:, 2] - TABLE, lifted(seen)
    reach = closeness(sum(np.linalg.norm(cube - point, axis=1) for point in (grip, left, right)) / 3)
    align = closeness(np.linalg.norm(base - cube + np.array([0, 0, 0.06]), axis=1)) * up
    aside = np.linalg.norm((base - cube)[:, :2], axis=1)
    stacked = (aside < 0.02) & (np.abs(height - 0.095) < 0.02) & (np.linalg.norm(cube - grip, axis=1) > 0.04)
    return {
        "reach": np.where(stacked, 0.0, 0.1 * np.maximum(reach, align)),
        "lift": np.where(stacked, 0.0, 1.5 * up),
        "align": np.where(stacked, 0.0, 2.0 * align),
        "stack": 16.0 * stacked,
        "flag: terminated": stacked,
        "flag: truncated": (seen.clock >= 299) & ~stacked,
        "flag: success": stacked,
    }


def disturb(env: Any, generator: torch.Generator) -> None:
    """Cube A near its goal, near its place on cube B, in the gripper, in the air; B stays on the table."""
    qpos, qvel = env.engine.qpos.clone(), torch.zeros_like(env.engine.qvel)
    target, grip = env.other().double(), env.grip().double()
    stacking = "goal" not in env.kept
    near = around(env, generator, target + torch.tensor([0.0, 0.0, 0.06 * stacking]), (0.025, 0.025, 0.02 * stacking))
    close = around(env, generator, target, (0.006, 0.006, 0.0)) if not stacking else near
    high = around(env, generator, grip, 0.06)
    choice = torch.randint(3, (env.num_envs, 1), generator=generator)
    place = torch.where(choice == 0, near, torch.where(choice == 1, close, high))
    turn = torch.where(choice == 2, directions(env, generator), torch.tensor([1.0, 0, 0, 0], dtype=torch.float64))
    qpos[:, :7] = torch.cat((place, turn), dim=1)
    env.engine.set_state(some(env, generator), qpos, qvel)

"""The AllegroKuka tasks as the fact sheet writes them: what is remembered, paid, counted and observed."""

from typing import Any

import numpy as np
import torch
from tasks.originals.watch import Array, Moment, around, directions, nearby, rotate, some, unscale, xyzw
from tasks.robots import limits

CORNERS = ((1, 1, 1), (1, 1, -1), (-1, -1, 1), (-1, -1, -1))
TIPS = {"index": (0.05, 0.005, 0), "middle": (0.05, 0.005, 0), "ring": (0.05, 0.005, 0), "thumb": (0.06, 0.005, 0)}
LAST = {"Regrasping": 399, "Reorientation": 599, "Throw": 299, "TwoArmsReorientation": 599}
HOLD = {"Regrasping": 30, "Reorientation": 1, "Throw": 5, "TwoArmsReorientation": 1}


class KukaOriginal:
    """One task's memory, kept apart from the task's own."""

    def __init__(self, task: str, scales: Array, tolerance: float, start: Moment) -> None:
        self.name, self.scales, self.tolerance = task.removeprefix("AllegroKuka"), scales, tolerance
        self.arms = 2 if self.name.startswith("TwoArms") else 1
        self.turned = "Reorientation" in self.name
        count = len(scales)
        self.lifted = np.zeros(count, bool)
        self.successes, self.near, self.clock = np.zeros(count), np.zeros(count, int), np.zeros(count, int)
        self.best_reach, self.best_distance = self.reach(start), self.distance(start)

    def palms(self, seen: Moment) -> list[tuple[Array, tuple[Array, ...], Array]]:
        """For each arm: centre of the palm, motion of the last link, fingertips `[N, 4, 3]`."""
        found = []
        for arm in range(self.arms):
            place, quat, linear, angular = seen.body(f"arm{arm}/iiwa7_link_7")
            centre = place + rotate(quat, (0.0, -0.02, 0.16))
            links = {finger: seen.body(f"arm{arm}/hand/{finger}_link_3") for finger in TIPS}
            tips = [link + rotate(turn, TIPS[finger]) for finger, (link, turn, *_) in links.items()]
            found.append((centre, (quat, linear, angular), np.stack(tips, axis=1)))
        return found

    def reach(self, seen: Moment) -> Array:
        tips = np.concatenate([tips for *_, tips in self.palms(seen)], axis=1)
        return np.linalg.norm(tips - seen.qpos[:, None, :3], axis=2)

    def keypoints(self, place: Array, quat: Array) -> Array:
        """`[N, K, 3]`."""
        if not self.turned:
            return place[:, None]
        offsets = [np.array(corner) * self.scales * 0.05 * 1.5 / 2 for corner in CORNERS]
        return np.stack([place + rotate(quat, offset) for offset in offsets], axis=1)

    def to_goal(self, seen: Moment) -> Array:
        goal = self.keypoints(seen.kept["goal_position"], xyzw(seen.kept["goal_orientation"]))
        return self.keypoints(seen.qpos[:, :3], xyzw(seen.qpos[:, 3:7])) - goal

    def distance(self, seen: Moment) -> Array:
        return np.linalg.norm(self.to_goal(seen), axis=2).max(axis=1)

    def __call__(self, seen: Moment) -> tuple[list[Array], dict[str, Array]]:
        """What is remembered is observed a step late; the clock and the reward are not."""
        return self.observation(seen), self.reward(seen)

    def observation(self, seen: Moment) -> list[Array]:
        palms, quat = self.palms(seen), xyzw(seen.qpos[:, 3:7])
        keypoints = self.keypoints(seen.qpos[:, :3], quat)
        ends = np.tile(limits("kuka_allegro"), (self.arms, 1))
        parts = [unscale(seen.qpos[:, 7:], ends), seen.qvel[:, 6:], *(centre for centre, *_ in palms)]
        parts += [part for _, motion, _ in palms for part in motion]
        parts += [quat, seen.qvel[:, :3], rotate(quat, seen.qvel[:, 3:6])]
        parts += [(tips - centre[:, None]).reshape(len(quat), -1) for centre, _, tips in palms]
        parts += [(keypoints - centre[:, None]).reshape(len(quat), -1) for centre, *_ in palms]
        parts += [self.to_goal(seen).reshape(len(quat), -1), self.scales, self.best_distance[:, None]]
        parts += [self.best_reach] if self.arms == 1 else []
        reached = self.near + (self.distance(seen) <= 1.5 * self.tolerance) >= HOLD[self.name]
        # Turned back within the step, where the original waits for the next.
        clock = np.where(reached, 0, self.clock + 1)
        parts += [self.lifted[:, None], np.log(clock / 10 + 1)[:, None], np.log(self.successes + 1)[:, None]]
        return [np.clip(part, -10, 10) for part in (*parts, 0.01 * seen.reward[:, None])]

    def reward(self, seen: Moment) -> dict[str, Array]:
        height = 0.05 + seen.qpos[:, 2] - 0.63
        lifted = self.lifted | (height > 0.15)
        terms = {"lift": 20 * np.clip(height, 0, 0.5) * ~lifted, "lift_bonus": 300.0 * (lifted & ~self.lifted)}
        self.lifted = lifted
        reach, distance = self.reach(seen), self.distance(seen)
        paid = 50 * np.clip(self.best_reach - reach, 0, 10).sum(axis=1)
        terms["reach"] = paid if self.arms == 2 else paid * ~lifted
        self.best_reach = np.minimum(self.best_reach, reach)
        terms["keypoint"] = 200 * np.clip(self.best_distance - distance, 0, 100) * lifted
        self.best_distance = np.minimum(self.best_distance, distance)
        near = distance <= 1.5 * self.tolerance
        self.near = self.near + near
        reached = self.near >= HOLD[self.name]
        self.successes = self.successes + reached
        terms["goal"] = near * 1000 / HOLD[self.name]
        speeds, cost = np.abs(seen.qvel[:, 6:]), 0.0 if self.arms == 2 else 1.0
        terms["arm_speed"] = -0.003 * cost * speeds[:, :7].sum(axis=1)
        terms["hand_speed"] = -0.0003 * cost * speeds[:, 7:23].sum(axis=1)
        self.clock = np.where(reached, 0, self.clock + 1)
        fell = seen.qpos[:, 2] < 0.1
        ended = fell | (self.successes >= 50)
        if self.name == "Reorientation":
            ended |= reach.max(axis=1) > 1.5
        out_of_time = (self.clock >= LAST[self.name]) & ~ended
        terms |= {"flag: terminated": ended, "flag: truncated": out_of_time, "flag: success": reached}
        terms |= {"flag: fell": fell, "flag: successes": self.successes.copy()}
        diverged = seen.log["quarantined"] > 0  # which the original has no word for; a new episode follows
        self.begin_again(seen, reached & ~diverged, ended | out_of_time | diverged)
        return terms

    def begin_again(self, seen: Moment, reached: Array, ended: Array) -> None:
        """Forget what a new goal, a new object or a new episode has not seen."""
        assert seen.after is not None
        replaced = ended | reached if self.name in ("Regrasping", "Throw") else ended
        self.near = np.where(reached | ended, 0, self.near)
        self.best_distance = np.where(reached | ended, self.distance(seen.after), self.best_distance)
        self.lifted &= ~replaced
        self.best_reach = np.where(replaced[:, None], self.reach(seen.after), self.best_reach)
        self.successes = np.where(ended, 0.0, self.successes)
        self.clock = np.where(ended, 0, self.clock)


def disturb(env: Any, generator: torch.Generator) -> None:
    """Objects at their goals, in the air, near the floor and far away; episodes that are nearly over."""
    qpos, qvel = env.engine.qpos.clone(), env.engine.qvel.clone()
    goal = env.kept["goal_position"].double()
    near = around(env, generator, goal, 0.1)
    high = around(env, generator, (0.0, -0.4, 0.75), (0.4, 0.3, 0.25))
    low = around(env, generator, (0.5, -0.6, 0.1), (0.0, 0.0, 0.02))
    far = around(env, generator, (0.0, -1.0, 0.9), (1.5, 0.3, 0.1))
    choice = torch.rand(env.num_envs, 1, generator=generator)
    place = torch.where(choice < 0.6, near, torch.where(choice < 0.9, high, torch.where(choice < 0.95, low, far)))
    turn = nearby(env, generator, env.kept["goal_orientation"].double(), 0.3)
    qpos[:, :7] = torch.cat((place, torch.where(choice < 0.6, turn, directions(env, generator))), dim=1)
    qvel[:, :6] = 0.0
    marker = env.engine.mocap_pos.clone(), env.engine.mocap_quat.clone()
    env.engine.set_state(some(env, generator, 0.2), qpos, qvel)
    env.engine.mocap_pos.copy_(marker[0])
    env.engine.mocap_quat.copy_(marker[1])

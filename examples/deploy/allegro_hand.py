"""AllegroHand's policy from an ONNX file in a plain MuJoCo loop, without Echelon or torch: mujoco, numpy, onnxruntime.

    echelon export runs/hand --format onnx --out deployed/policy.onnx
    scene=src/echelon/tasks/in_hand/allegro_cube.xml
    python -c "import mujoco as m; m.mj_saveModel(m.MjModel.from_xml_path('$scene'), 'deployed/hand.mjb')"
    cp examples/deploy/allegro_hand.py deployed/
    cd deployed && python allegro_hand.py policy.onnx hand.mjb --episodes 256

What is observed, what an action does, goals, successes and ends of episodes are those of docs/tasks/allegro_hand.md,
by default. `results/deployment/run.py RUN` does all of this and compares with `echelon evaluate`.
"""

import argparse
import json

import mujoco
import numpy as np

SUBSTEPS, EPISODE, SUCCESS_ANGLE, DROP = 4, 599, 0.1, 0.24
CUBE_START, GOAL_POSITION = np.array([0.0, -0.2, 0.56]), np.array([0.0, -0.2, 0.52])
JOINTS = [f"hand/{finger}_joint_{i}" for finger in ("index", "middle", "ring", "thumb") for i in range(4)]


class Hand:
    """One hand with a cube, on MuJoCo alone."""

    def __init__(self, model, seed=0):
        self.model, self.data, self.random = model, mujoco.MjData(model), np.random.default_rng(seed)
        joints = [model.joint(name) for name in JOINTS]
        self.q, self.v = (np.array([getattr(j, name)[0] for j in joints]) for name in ("qposadr", "dofadr"))
        self.low, self.high = model.jnt_range[[j.id for j in joints]].T
        ids = [j.id for j in joints]
        self.driven = np.array([ids.index(joint) for joint in model.actuator_trnid[:, 0]])
        self.cube = model.joint("cube").qposadr[0], model.joint("cube").dofadr[0]
        self.goal, self.action = np.array([1.0, 0, 0, 0]), np.zeros(model.nu)

    def reset(self):
        """A cube above the palm, joints near their middle, a first goal."""
        mujoco.mj_resetData(self.model, self.data)
        start = self.cube[0]
        self.data.qpos[start : start + 3] = CUBE_START + self.random.uniform(-0.01, 0.01, 3)
        self.data.qpos[start + 3 : start + 7] = self.orientation()
        drawn = self.low + (self.high - self.low) * self.random.uniform(0, 1, len(self.q))
        self.data.qpos[self.q] = np.clip(0.2 * drawn, self.low, self.high)
        self.data.ctrl[:] = self.data.qpos[self.q][self.driven]
        self.goal, self.action = self.orientation(), np.zeros(self.model.nu)

    def orientation(self):
        """Turned about x, then about y."""
        x, y = self.random.uniform(-np.pi, np.pi, 2) / 2
        return np.array([np.cos(x) * np.cos(y), np.sin(x) * np.cos(y), np.cos(x) * np.sin(y), np.sin(x) * np.sin(y)])

    def step(self, action):
        """Targets of the servos for a thirtieth of a second; whether the goal was reached, and whether it fell."""
        self.action = np.clip(action, -1, 1)
        low, high = self.model.actuator_ctrlrange.T
        self.data.ctrl[:] = low + 0.5 * (self.action + 1) * (high - low)
        mujoco.mj_step(self.model, self.data, nstep=SUBSTEPS)
        position = self.data.qpos[self.cube[0] : self.cube[0] + 3]
        return self.angle() <= SUCCESS_ANGLE, np.linalg.norm(position - GOAL_POSITION) >= DROP

    def angle(self):
        """Between cube and goal, in radians."""
        return 2 * np.arcsin(min(1.0, np.linalg.norm(self.to_goal()[1:])))

    def to_goal(self):
        orientation, result = self.data.qpos[self.cube[0] + 3 : self.cube[0] + 7], np.zeros(4)
        mujoco.mju_mulQuat(result, orientation, self.goal * [1, -1, -1, -1])
        return result

    def observe(self):
        """88 numbers, in the order of the task's page."""
        q, v = self.data.qpos[self.q], self.data.qvel[self.v]
        pose = self.data.qpos[self.cube[0] : self.cube[0] + 7]
        linear, angular = self.data.qvel[self.cube[1] : self.cube[1] + 6].reshape(2, 3)
        world = np.zeros(3)
        mujoco.mju_rotVecQuat(world, angular, pose[3:])
        xyzw = [1, 2, 3, 0]
        parts = [
            (2 * q - self.high - self.low) / (self.high - self.low),
            0.2 * v,
            10 * self.torques(q, v),
            pose[:3],
            pose[3:][xyzw],
            linear,
            0.2 * world,
            GOAL_POSITION,
            self.goal[xyzw],
            self.to_goal()[xyzw],
            self.action,
        ]
        return np.clip(np.concatenate(parts), -5, 5).astype(np.float32)

    def torques(self, q, v):
        """Torques of the servos, by their own law."""
        gain, damping = self.model.actuator_gainprm[:, 0], -self.model.actuator_biasprm[:, 2]
        wanted = gain * (self.data.ctrl - q[self.driven]) - damping * v[self.driven]
        found = np.zeros(len(q))
        found[self.driven] = np.clip(wanted, *self.model.actuator_forcerange.T)
        return found


def play(hand, act, episodes):
    """Successes and control steps of each episode."""
    successes, lengths = [], []
    for _ in range(episodes):
        hand.reset()
        reached = steps = 0
        fell = False
        while steps < EPISODE and not fell:
            success, fell = hand.step(act(hand.observe()[None])[0])
            reached, steps = reached + success, steps + 1
            if success:
                hand.goal = hand.orientation()
        successes.append(reached)
        lengths.append(steps)
    return np.array(successes, float), np.array(lengths, float)


def main():
    import onnxruntime

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy")
    parser.add_argument("model")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    session = onnxruntime.InferenceSession(given.policy, providers=["CPUExecutionProvider"])
    hand = Hand(mujoco.MjModel.from_binary_path(given.model), given.seed)
    successes, lengths = play(hand, lambda obs: session.run(None, {"obs": obs})[0], given.episodes)
    if given.json:
        print(json.dumps({"successes": successes.tolist(), "lengths": lengths.tolist()}))
        return
    error = 1.96 * successes.std() / np.sqrt(len(successes))
    print(f"{successes.mean():.2f} ± {error:.2f} successes in {lengths.mean():.0f} steps, {len(lengths)} episodes")


if __name__ == "__main__":
    main()

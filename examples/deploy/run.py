"""Run an exported policy on MuJoCo at its control rate, without Echelon or torch: mujoco, numpy, for .onnx onnxruntime.

    echelon export runs/walk --out deployed/policy.npz        # or policy.onnx
    python examples/deploy/run.py deployed/policy.npz model.xml

The robot starts in its default pose and stands still; a third file has a start per episode: arrays qpos, qvel and
command. Prints each episode's return and length for the tasks whose reward is here. Replace `Simulation` by your
robot's driver and nothing else changes; `ros2_node.py` does that.
"""

import argparse
import json
import sys
import time

import mujoco
import numpy as np
from policy import Policy


class Simulation:
    """A robot in MuJoCo, with the quantities that policies observe."""

    def __init__(self, path, policy):
        load = mujoco.MjModel.from_binary_path if path.endswith(".mjb") else mujoco.MjModel.from_xml_path
        try:
            self.model, self.command = load(path), np.zeros(3)
        except ValueError as error:  # MuJoCo names the file and what is wrong
            sys.exit(f"{path} is no model that MuJoCo can load: {error}")
        self.data = mujoco.MjData(self.model)
        try:
            self.actuators = [self.model.actuator(name).id for name in policy.actuators]
        except KeyError as error:
            sys.exit(f"{path} is not the robot of the policy: {error.args[0]}")
        self.substeps = round(1 / (policy.rate * self.model.opt.timestep))

    def start(self, qpos, qvel, command):
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:], self.command = qpos, qvel, command

    def step(self, control):
        self.data.ctrl[self.actuators] = control
        mujoco.mj_step(self.model, self.data, self.substeps)

    def to_base(self, vector):
        """From the world's frame to that of a floating base, whose joint is the model's first."""
        found = np.zeros(3)
        mujoco.mju_rotVecQuat(found, np.array(vector, float), self.data.qpos[3:7] * [1, -1, -1, -1])
        return found

    def read(self, quantity, names):
        """The current value of a quantity, one number per name."""
        if "joint" in quantity:
            joints = [self.data.joint(name) for name in names]
            if quantity == "joint velocity":
                return [joint.qvel[0] for joint in joints]
            function = {"joint position": float, "sine of joint position": np.sin, "cosine of joint position": np.cos}
            return [function[quantity](joint.qpos[0]) for joint in joints]
        axes = ["forward", "left", "turn"] if quantity == "command" else ["x", "y", "z"]
        found = {
            "base linear velocity": lambda: self.to_base(self.data.qvel[:3]),
            "base angular velocity": lambda: self.data.qvel[3:6],
            "gravity direction": lambda: self.to_base([0, 0, -1]),
            "command": lambda: self.command,
        }[quantity]()
        return [found[axes.index(name)] for name in names]

    def sensor(self, *names):
        return np.array([self.data.sensor(name).data[0] for name in names])


def cartpole(robot, action, s):
    """Reward of the step, and whether the episode ends in failure; `s`: the task's settings."""
    (position, angle), (_, spin) = robot.data.qpos, robot.data.qvel
    height = 0.5 + 0.5 * np.cos(angle)
    calm = max(0, 1 - s["spin_cost"] * spin**2)
    raised = (0.25 * height + 0.75 * height**4) * (1 - 0.8 * abs(position) / 1.9)
    return raised * calm - s["action_cost"] * action[0] ** 2, False


def hopper(robot, action, s):
    height, pitch = robot.data.qpos[1] + robot.model.body("torso").pos[2], robot.data.qpos[2]
    reward = min(robot.data.qvel[0], s["target_velocity"]) + s["alive_reward"] - s["action_cost"] * np.mean(action**2)
    return reward, height < s["min_height"] or abs(pitch) > s["max_pitch"]


def anymal(robot, action, s):
    error = robot.command[:2] - robot.to_base(robot.data.qvel[:3])[:2]
    turn, legs = robot.command[2] - robot.data.qvel[5], ("LF", "LH", "RF", "RH")
    torques = robot.sensor(*(f"{leg}_{joint}" for leg in legs for joint in ("HAA", "HFE", "KFE")))
    tracking = s["linear_reward"] * np.exp(-error @ error / 0.25) + s["angular_reward"] * np.exp(-(turn**2) / 0.25)
    touches = robot.sensor("base", *(f"{leg}_THIGH" for leg in legs))
    return max(0, tracking - s["torque_cost"] * torques @ torques), bool((touches > s["contact_force"]).any())


REWARDS = {"CartpoleSwingup": cartpole, "Hopper": hopper, "Anymal": anymal}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy")
    parser.add_argument("model")
    parser.add_argument("starts", nargs="?")
    parser.add_argument("--fast", action="store_true", help="do not wait for the clock")
    given = parser.parse_args()
    policy = Policy(given.policy)
    robot, facts = Simulation(given.model, policy), policy.facts
    pose = np.concatenate([joint["default"] for joint in facts["joints"]])
    try:
        starts = np.load(given.starts) if given.starts else {"qpos": [pose]}
    except FileNotFoundError:
        sys.exit(f"there is no {given.starts}")
    zeros = {"qvel": robot.model.nv, "command": 3}
    score = REWARDS.get(facts["task"], lambda *_: (0.0, False))
    for i in range(len(starts["qpos"])):
        robot.start(
            starts["qpos"][i], *(starts[name][i] if name in starts else np.zeros(n) for name, n in zeros.items())
        )
        policy.reset()
        total, failed, steps, tick = 0.0, False, 0, time.perf_counter()
        while steps < facts["settings"]["episode_length"] and not failed:
            robot.step(policy.control(robot.read))
            reward, failed = score(robot, policy.action, facts["settings"])
            total, steps, tick = total + float(reward), steps + 1, tick + 1 / policy.rate
            if not given.fast:
                time.sleep(max(0.0, tick - time.perf_counter()))
        print(json.dumps({"return": total, "length": steps}), flush=True)


if __name__ == "__main__":
    main()

"""A trained policy in a plain MuJoCo loop: no Echelon, no torch. Needs mujoco and numpy.

    echelon train CartpoleSwingup --out runs/cartpole
    echelon export runs/cartpole --out deployed/policy.npz       # writes numpy_policy.py beside it
    cp examples/deploy.py src/echelon/tasks/cartpole/cartpole.xml deployed/
    cd deployed && python deploy.py policy.npz cartpole.xml

What the policy sees and what its action does are the task's: docs/tasks/ has them for each.
"""

import sys

import mujoco
import numpy as np
from numpy_policy import NumpyPolicy


def observe(data: mujoco.MjData) -> np.ndarray:
    """Cart position, sin and cos of the pole's angle, both velocities."""
    position, angle = data.qpos
    return np.array([position, np.sin(angle), np.cos(angle), *data.qvel])


def main(policy_file: str, model_file: str, episodes: int = 20) -> None:
    policy = NumpyPolicy(policy_file)
    model = mujoco.MjModel.from_xml_path(model_file)
    data, random = mujoco.MjData(model), np.random.default_rng(0)
    upright = []
    for _ in range(episodes):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = random.uniform(-0.5, 0.5), np.pi + random.uniform(-0.3, 0.3)
        data.qvel[:] = random.uniform(-0.05, 0.05, 2)
        policy.reset()
        for step in range(200):  # of 0.05 s: two of MuJoCo's
            data.ctrl[:] = policy(observe(data))
            mujoco.mj_step(model, data, nstep=2)
            if step >= 100:
                upright.append(np.cos(data.qpos[1]) > np.cos(0.25) and abs(data.qpos[0]) < 0.5)
    print(f"{policy.metadata['task']}: upright in {np.mean(upright):.0%} of the second half of {episodes} episodes")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

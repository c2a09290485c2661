"""Poses from states by plain MuJoCo, which the recordings are held against."""

import mujoco
import numpy as np

from echelon.viewing.recorder import Tape


def simulated(tape: Tape, frame: int) -> np.ndarray:
    """`[bodies, 7]` from the state alone: x y z, then w x y z."""
    data = mujoco.MjData(tape.model)
    data.qpos[:] = tape.qpos[frame]
    data.mocap_pos[:], data.mocap_quat[:] = tape.mocap[frame, :, :3], tape.mocap[frame, :, 3:]
    mujoco.mj_kinematics(tape.model, data)
    return np.concatenate((data.xpos, data.xquat), axis=1)

"""Which sensors describe the last substep instead of the current state; the same for every engine."""

import mujoco
import numpy as np


def acceleration_sensors(model: mujoco.MjModel) -> np.ndarray:
    """`[nsensordata]` bool: entries of sensors of accelerations and forces (accelerometer, touch, force, torque).

    They need the solver, so they describe the last substep of a step, and are zero after the state was set.
    """
    late = np.zeros(model.nsensordata, dtype=bool)
    for first, size, stage in zip(model.sensor_adr, model.sensor_dim, model.sensor_needstage, strict=True):
        late[first : first + size] = stage == int(mujoco.mjtStage.mjSTAGE_ACC)
    return late

"""Buffer sizes for contacts and constraints, for an engine that allocates them ahead."""

from dataclasses import dataclass

import mujoco
import numpy as np

ROLLOUTS, STEPS = 16, 400
CAPACITY_FACTOR = 2.0
"""Buffer size over the largest number the probe met: trained policies press harder than random ones."""


@dataclass(frozen=True)
class Capacity:
    """Buffer sizes of one simulation."""

    contacts: int
    constraints: int


def probe(model: mujoco.MjModel, seed: int = 0) -> Capacity:
    """Buffer sizes from rollouts of random controls, each held for a few steps."""
    rng, data = np.random.default_rng(seed), mujoco.MjData(model)
    limited = model.actuator_ctrllimited.astype(bool)
    low = np.where(limited, model.actuator_ctrlrange[:, 0], -1.0)
    high = np.where(limited, model.actuator_ctrlrange[:, 1], 1.0)
    contacts = constraints = 0
    for _ in range(ROLLOUTS):
        mujoco.mj_resetData(model, data)
        data.qvel[:] = 0.1 * rng.standard_normal(model.nv)
        for step in range(STEPS):
            if step % 10 == 0:
                data.ctrl[:] = rng.uniform(low, high)
            mujoco.mj_step(model, data)
            contacts, constraints = max(contacts, data.ncon), max(constraints, data.nefc)
    return Capacity(8 + int(CAPACITY_FACTOR * contacts), 16 + int(CAPACITY_FACTOR * constraints))

"""How much room for contacts and constraints a model needs on an engine that allocates it ahead."""

from dataclasses import dataclass

import mujoco
import numpy as np

ROLLOUTS, STEPS = 16, 400
MARGIN = 2.0
"""Room beyond the most that the probe met. Trained policies press harder than random ones."""


@dataclass(frozen=True)
class Capacity:
    """Per simulation."""

    contacts: int
    constraints: int


def probe(model: mujoco.MjModel, seed: int = 0) -> Capacity:
    """Roll out random controls, each held for a few steps, and note the most contacts and constraints met."""
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
    return Capacity(8 + int(MARGIN * contacts), 16 + int(MARGIN * constraints))

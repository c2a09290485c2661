"""Physics engines behind one contract: choosing one, and what all of them share."""

import mujoco
import numpy as np
import torch

from echelon.sim.contract import Engine

ROLLOUTS, STEPS = 16, 400
CAPACITY_FACTOR = 2.0
"""Buffer size over the largest number the probe met: trained policies press harder than random ones."""


def make_engine(
    model: mujoco.MjModel,
    num_sims: int,
    device: torch.device,
    contacts: int | None = None,
    constraints: int | None = None,
    physics: str = "fused",
) -> Engine:
    """Build the engine for a device: MuJoCo's thread pool on a CPU, MuJoCo Warp on a CUDA GPU.

    `contacts` and `constraints` are the buffer sizes of MuJoCo Warp; MuJoCo on a CPU allocates what it needs.
    `physics` is "fused" for our kernels on MuJoCo Warp's data, "stock" for its own.
    """
    if device.type == "cpu":
        from echelon.sim.cpu import CpuEngine

        return CpuEngine(model, num_sims)
    from echelon.sim.warp import PARTS, WarpEngine  # an optional dependency, and slow to import

    return WarpEngine(model, num_sims, device, contacts, constraints, fused=PARTS if physics == "fused" else ())


def probe(model: mujoco.MjModel, seed: int = 0) -> tuple[int, int]:
    """Buffer sizes per simulation for contacts and constraints, from rollouts of random controls, each held for a few
    steps: for an engine that allocates them ahead."""
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
    return 8 + int(CAPACITY_FACTOR * contacts), 16 + int(CAPACITY_FACTOR * constraints)


def acceleration_sensors(model: mujoco.MjModel) -> np.ndarray:
    """`[nsensordata]` bool: entries of sensors of accelerations and forces (accelerometer, touch, force, torque).

    They need the solver, so they describe the last substep of a step, and are zero after the state was set.
    """
    return np.repeat(model.sensor_needstage == int(mujoco.mjtStage.mjSTAGE_ACC), model.sensor_dim)

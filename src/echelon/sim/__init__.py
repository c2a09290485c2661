"""Physics engines behind one contract."""

import mujoco
import torch

from echelon.sim.contract import Engine


def make_engine(
    model: mujoco.MjModel, num_sims: int, device: torch.device, contacts: int | None, constraints: int | None
) -> Engine:
    """The engine for a device: MuJoCo's thread pool on a CPU, MuJoCo Warp on a CUDA GPU.

    `contacts` and `constraints` are the buffer sizes of MuJoCo Warp; MuJoCo on a CPU allocates what it needs.
    """
    if device.type == "cpu":
        from echelon.sim.cpu import CpuEngine

        return CpuEngine(model, num_sims)
    from echelon.sim.warp import WarpEngine  # an optional dependency, and slow to import

    return WarpEngine(model, num_sims, device, contacts, constraints)

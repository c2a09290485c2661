"""Physics engines behind one contract."""

import mujoco
import torch

from echelon.sim.contract import Engine


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

"""mjlab's Go1 on flat ground: `mujoco_warp.step` with and without `echelon.sim.newton.install()`.

    python results/physics/go1.py .../mjlab/asset_zoo/robots/unitree_go1/xmls/go1.xml 4096 24576

The robot's XML is mjlab's; actuators, contacts and options are those of its flat velocity task.
"""

import json
import sys
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from mujoco_warp._src import solver

from echelon.sim import newton

HOME = np.tile([0.0, 0.9, -1.8], 4)
ROTOR_INERTIA = 0.000111842


def build(path: str) -> mujoco.MjModel:
    spec = mujoco.MjSpec.from_file(path)
    spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.01])
    for geom in spec.geoms:
        if geom.name and "collision" in geom.name:
            foot = "foot" in geom.name
            geom.contype = geom.conaffinity = 1
            geom.solref, geom.condim, geom.priority = [0.01, 1], 6 if foot else 1, int(foot)
            if foot:
                geom.friction = [1, 5e-3, 5e-4]
    for joint in spec.joints:
        if joint.type == mujoco.mjtJoint.mjJNT_HINGE:
            knee = "calf" in joint.name
            inertia, frequency = ROTOR_INERTIA * (9 if knee else 6) ** 2, 20 * np.pi
            joint.armature, limit = inertia, 35.55 if knee else 23.7
            servo = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            servo.gainprm[0] = inertia * frequency**2
            servo.biastype = mujoco.mjtBias.mjBIAS_AFFINE
            servo.biasprm[1], servo.biasprm[2] = -inertia * frequency**2, -4 * inertia * frequency
            servo.forcelimited, servo.forcerange = True, [-limit, limit]
    model = spec.compile()
    model.opt.timestep, model.opt.iterations, model.opt.ls_iterations, model.opt.impratio = 0.005, 10, 20, 10
    model.opt.cone, model.opt.integrator = mujoco.mjtCone.mjCONE_ELLIPTIC, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    return model


def measure(model: mujoco.MjModel, worlds: int) -> dict[str, Any]:
    m, d = mjw.put_model(model), mjw.make_data(model, nworld=worlds, nconmax=24, njmax=300)
    m.opt.warn_overflow = 0
    state = {name: wp.to_torch(getattr(d, name)) for name in ("qpos", "qvel", "qacc_warmstart")}
    ctrl = wp.to_torch(d.ctrl)
    home = torch.tensor(HOME, device=ctrl.device).float()
    state["qpos"][:, 2], state["qpos"][:, 7:] = 0.32, home
    generator = torch.Generator(ctrl.device).manual_seed(0)
    for _ in range(25):  # to where it stumbles
        ctrl.copy_(home + 0.3 * torch.randn(ctrl.shape, generator=generator, device=ctrl.device))
        for _ in range(4):
            mjw.step(m, d)
    start, stock, graphs = {name: x.clone() for name, x in state.items()}, solver.solve, {}
    for kind in ("stock", "fused"):
        if kind == "fused":
            newton.install()
        mjw.step(m, d)
        with wp.ScopedCapture() as capture:
            for _ in range(4):
                mjw.step(m, d)
        graphs[kind] = capture.graph
    solver.solve = stock
    times, ends = {kind: [] for kind in graphs}, {}
    for _ in range(9):
        for kind, graph in graphs.items():
            for name, x in state.items():
                x.copy_(start[name])
            with wp.ScopedTimer(kind, print=False, synchronize=True) as timer:
                for _ in range(8):
                    wp.capture_launch(graph)
            times[kind].append(timer.elapsed / 8)
            ends[kind] = state["qpos"].clone()
    apart = (ends["stock"] - ends["fused"]).abs().amax(1)
    ms = {kind: float(np.median(x)) for kind, x in times.items()}
    return {
        "worlds": worlds,
        "ms per control step": ms,
        "ratio": ms["stock"] / ms["fused"],
        "apart after 8, median": float(apart.median()),
        "not fused because": newton.unsupported(m, d),
    }


def main() -> None:
    wp.config.log_level = wp.LOG_WARNING
    model = build(sys.argv[1])
    for worlds in map(int, sys.argv[2:]):
        print(json.dumps(measure(model, worlds)), flush=True)


if __name__ == "__main__":
    main()

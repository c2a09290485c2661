"""Can the AllegroKuka hand pick up the cuboids? Random grasps from above, without a policy, by physics settings.

    python results/allegro_kuka_grasps/run.py [GRASPS] [cpu, stock or fused]

Every grasp: the hand goes down over a cuboid that lies on the table, closes, lifts it by 20 cm and holds it for two
seconds. Where the hand goes and how it closes is drawn at random, so most grasps are bad ones; what counts is how many
hold, how heavy they are, and what a change of the physics does to them. `stock` and `fused` are the chosen physics on a
CUDA GPU, by MuJoCo Warp's own kernels and by ours.
"""

import sys
from dataclasses import dataclass

import mujoco
import numpy as np
import torch
from variants import CHOSEN, vary

from echelon.sim import make_engine
from echelon.sim.cpu import CpuEngine
from echelon.tasks.allegro_kuka import objects, scene
from echelon.tasks.allegro_kuka.arms import Arms
from echelon.tasks.allegro_kuka.task import AllegroKuka

OPEN = (0.0, 0.1, 0.1, 0.1) * 3 + (1.3, 0.2, 0.1, 0.1)
LIFT = np.array([0.0, 0.05, 0.2])
LIFTED = 0.1
"""Metres above where the object lay."""
FLUNG = 5.0
"""m/s; such an object is not held, wherever it is."""
VARIANTS = {
    "**chosen**": CHOSEN,
    "MuJoCo's `solimp`, 0.9 and 0.95": "solimp=0.9/0.95",
    "`solimp` 0.99 and 0.999": "solimp=0.99/0.999",
    "pyramids": "cone=pyramidal",
    "pyramids, MuJoCo's `solimp`": "cone=pyramidal,solimp=0.9/0.95",
    "pyramids, `impratio` 3": "cone=pyramidal,impratio=3",
    "pyramids, `impratio` 5": "cone=pyramidal,impratio=5",
    "pyramids, `impratio` 5, 12 iterations": "cone=pyramidal,impratio=5,iterations=12",
    "pyramids, `impratio` 5, 6 iterations": "cone=pyramidal,impratio=5,iterations=6",
    "`impratio` 5": "impratio=5",
    "1/180 s × 3, contacts 11 ms": "substeps=3,contacts=11.1",
    "20 iterations": "iterations=20",
    "6 iterations": "iterations=6",
    "5 iterations": "iterations=5",
    "5 of line search": "line_search=5",
    "6 iterations, 5 of line search": "iterations=6,line_search=5",
    "condim 4": "condim=4",
    "friction 0.5": "friction=0.5",
}
"""How they are called in a table, and how they are written (`variants.py`)."""
ON_CUDA = ("**chosen**", "20 iterations")


@dataclass(frozen=True)
class Grasps:
    """`G` of them: objects, how they lie, arm angles above and at the object, finger angles when closed."""

    scales: list[objects.Scales]
    yaw: np.ndarray
    above: np.ndarray
    at: np.ndarray
    closed: np.ndarray


def reach(model: mujoco.MjModel, data: mujoco.MjData, place: np.ndarray, axes: np.ndarray) -> np.ndarray | None:
    """Arm angles that bring the palm to a pose, by damped least squares; None where there are none."""
    site, (low, high) = model.site("arm0/hand/palm_centre").id, model.jnt_range[1:8].T
    data.qpos[7:14] = AllegroKuka.arm_pose
    jacobian, quat, turn = np.zeros((6, model.nv)), np.zeros(4), np.zeros(3)
    for _ in range(200):
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mju_mat2Quat(quat, (axes @ data.site_xmat[site].reshape(3, 3).T).ravel())
        mujoco.mju_quat2Vel(turn, quat, 1.0)
        error = np.concatenate((place - data.site_xpos[site], turn))
        if np.linalg.norm(error) < 1e-3:
            return data.qpos[7:14].copy()
        mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], site)
        arm = jacobian[:, 6:13]
        change = arm.T @ np.linalg.solve(arm @ arm.T + 1e-4 * np.eye(6), error)
        data.qpos[7:14] = np.clip(data.qpos[7:14] + change.clip(-0.1, 0.1), low, high)
    return None


def draw(count: int, seed: int = 0) -> Grasps:
    """Palms that look down on the object, tilted towards the fingers, with the object between fingers and thumb."""
    rng, model = np.random.default_rng(seed), scene.build("kuka_one_arm.xml")
    data = mujoco.MjData(model)
    every = objects.shuffled(objects.small(), objects.big(), objects.sticks())
    rows = []
    while len(rows) < count:
        scales = every[rng.integers(len(every))]
        yaw = 0.0 if scales[1] <= scales[0] else np.pi / 2  # the shorter side between fingers and thumb
        about, tilt = rng.uniform(-0.3, 0.3), rng.uniform(0.0, 0.6)
        ahead = np.array([-np.sin(about) * np.cos(tilt), -np.cos(about) * np.cos(tilt), -np.sin(tilt)])
        aside = np.array([-np.cos(about), np.sin(about), 0.0])
        axes = np.stack((ahead, aside, np.cross(ahead, aside)), axis=1)
        grip = rng.uniform((0.03, -0.02, 0.035), (0.09, 0.03, 0.08))
        place = np.array([0.0, 0.0, 0.53 + 0.05 * scales[2] * rng.uniform(0.4, 0.9)]) - axes @ grip
        at, above = reach(model, data, place, axes), reach(model, data, place + LIFT, axes)
        finger = [0.0, *rng.uniform((0.8, 0.4, 0.2), (1.5, 1.3, 1.0))]
        thumb = rng.uniform((1.1, 0.0, 0.3, 0.3), (1.5, 0.5, 1.2, 1.2))
        if at is not None and above is not None:
            rows.append((scales, yaw, above, at, [*finger * 3, *thumb]))
    scales, yaw, above, at, closed = zip(*rows, strict=True)
    return Grasps(list(scales), np.array(yaw), np.array(above), np.array(at), np.array(closed))


def carry_out(grasps: Grasps, variant: str, kind: str = "cpu") -> str:
    """One line about all grasps under one variant of the physics."""
    model, count = scene.build("kuka_one_arm.xml"), len(grasps.scales)
    steps = vary(model, round(1 / 60 / model.opt.timestep), variant)
    if kind == "cpu":
        engine = CpuEngine(model, count)
    else:
        torch.set_default_device("cuda")
        engine = make_engine(model, count, torch.device("cuda"), 56, 224, kind)
    arms = Arms(engine, AllegroKuka.arm_pose, relative=False, control_step=1 / 60)
    scales, mass = objects.give(engine, grasps.scales)
    start = torch.tensor(model.qpos0).repeat(count, 1)
    start[:, 2] = 0.53 + 0.025 * scales[:, 2]
    start[:, 3], start[:, 6] = torch.tensor(np.cos(grasps.yaw / 2)), torch.tensor(np.sin(grasps.yaw / 2))
    start[:, 7:] = torch.tensor(np.concatenate((grasps.above, np.tile(OPEN, (count, 1))), axis=1))
    engine.set_state(torch.ones(count, dtype=torch.bool), start, torch.zeros_like(engine.qvel))
    fastest = torch.zeros(count, dtype=engine.qvel.dtype)

    def go(control_steps: int, arm: np.ndarray, hand: np.ndarray) -> None:
        begin = arms.target.clone()
        end = torch.tensor(np.concatenate((arm, hand), axis=1)).float()
        for step in range(control_steps):
            arms.target.copy_(begin + (end - begin) * min(1.0, 1.5 * (step + 1) / control_steps))
            wanted = arms.target.clone()
            wanted[:, :4] -= 0.15 * arms.velocities()[:, :4]  # the servos damp the large joints by a fifth of critical
            engine.ctrl.copy_(wanted.clamp(arms.angles() - arms.lead, arms.angles() + arms.lead))
            engine.step(steps)
            torch.maximum(fastest, engine.qvel[:, :3].norm(dim=1), out=fastest)

    opened = np.tile(OPEN, (count, 1))
    arms.hold(torch.ones(count, dtype=torch.bool))
    go(90, grasps.at, opened)
    go(45, grasps.at, grasps.closed)
    go(120, grasps.above, grasps.closed)
    up = (engine.qpos[:, 2] - start[:, 2] > LIFTED) & (fastest < FLUNG)
    seen = (engine.qpos[:, :3] - engine.sensordata[:, :3]).clone()
    go(120, grasps.above, grasps.closed)
    held = up & (engine.qpos[:, 2] - start[:, 2] > LIFTED) & (fastest < FLUNG)
    moved = 1e3 * (engine.qpos[:, :3] - engine.sensordata[:, :3] - seen).norm(dim=1)[held]
    heavy = 1e3 * mass[held].amax() if held.any() else 0.0
    middle = moved.median() if held.any() else float("nan")
    return f"{int(up.sum())} | {int(held.sum())} | {middle:.1f} mm | {heavy:.0f} g | {int((fastest >= FLUNG).sum())}"


def main() -> None:
    grasps = draw(int(sys.argv[1]) if sys.argv[1:] else 256)
    print(f"{len(grasps.scales)} grasps: | lifted | held 2 s | moved in the hand | heaviest held | flung above 5 m/s")
    kind = sys.argv[2] if sys.argv[2:] else "cpu"
    chosen = VARIANTS if kind == "cpu" else {name: text for name, text in VARIANTS.items() if name in ON_CUDA}
    for name, variant in chosen.items():
        print(f"| {name} | {carry_out(grasps, variant, kind)} |", flush=True)


if __name__ == "__main__":
    main()

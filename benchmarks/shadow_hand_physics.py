"""Physics settings of the Shadow hand: what each costs on one core, how stable it is, how deep the cube sinks in.

    OMP_NUM_THREADS=1 python benchmarks/shadow_hand_physics.py [--num-sims 64] [--control-steps 60] [--repetitions 5]

Every variant is run at 60 Hz of control. *Rest*: the cube lies on the open hand for two seconds; depth and drift are
those of the second half. *Random*: servo targets anywhere in their ranges, new ones every 0.1 s, so that the cube is
hit and squeezed; it starts anew where it has been dropped. Rates are control steps per second of processor time, the
median of repetitions in which the variants alternate, because the machine may be busy with other things.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import mujoco
import numpy as np
import torch

from echelon.robots import __path__ as robots_path
from echelon.sim.cpu import CpuEngine

CONTROL_HZ = 60
HOLD = 6  # control steps between new random targets
GOAL = torch.tensor((0.0, -0.39, 0.56), dtype=torch.float64)
DROP_DISTANCE = 0.24

SELF_PAIRS = [
    *(("thdistal", f"{finger}distal") for finger in ("ff", "mf", "rf", "lf")),
    *(("thdistal", other) for other in ("ffmiddle", "ffproximal", "mfproximal", "palm")),
    *((f"{one}distal", f"{two}distal") for one, two in (("ff", "mf"), ("mf", "rf"), ("rf", "lf"), ("lf", "mf"))),
    *((f"{one}proximal", f"{two}proximal") for one, two in (("ff", "mf"), ("mf", "rf"), ("rf", "lf"))),
    *(("lfdistal", "rfmiddle"), ("lfmiddle", "rfdistal"), ("lfmiddle", "rfmiddle")),
]

Edit = Callable[[mujoco.MjSpec], None]


def contact_time(seconds: float) -> Edit:
    """Time constant of contacts."""

    def edit(spec: mujoco.MjSpec) -> None:
        for geom in spec.geoms:
            geom.solref[0] = seconds

    return edit


def friction_loss(spec: mujoco.MjSpec) -> None:
    for joint in spec.joints:
        if joint.name != "cube":
            joint.frictionloss = 0.001


def elliptic(spec: mujoco.MjSpec) -> None:
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10


def no_wrenches(spec: mujoco.MjSpec) -> None:
    for sensor in list(spec.sensors):
        if sensor.name.endswith(("_force", "_torque")):
            spec.delete(sensor)


def no_gravcomp(spec: mujoco.MjSpec) -> None:
    for body in spec.bodies:
        body.gravcomp = 0


def self_collision(spec: mujoco.MjSpec) -> None:
    """The 18 frictionless pairs of the reference."""
    for first, second in SELF_PAIRS:
        spec.add_pair(geomname1=first, geomname2=second, condim=1)


VARIANTS: dict[str, tuple[int, list[Edit]]] = {
    "1/120 s × 2, contacts 17 ms": (2, [contact_time(0.017)]),
    "1/180 s × 3, contacts 12 ms (chosen)": (3, []),
    "1/240 s × 4, contacts 9 ms": (4, [contact_time(0.009)]),
    "1/180 s × 3, contacts 20 ms (MuJoCo's default)": (3, [contact_time(0.02)]),
    "chosen, with joint friction 0.001 N m": (3, [friction_loss]),
    "chosen, with elliptic cones, impratio 10": (3, [elliptic]),
    "chosen, with the reference's 18 self-collision pairs": (3, [self_collision]),
    "chosen, without fingertip wrenches": (3, [no_wrenches]),
    "chosen, without gravity compensation": (3, [no_gravcomp]),
}


@dataclass
class Trial:
    """A variant and what has been measured of it."""

    model: mujoco.MjModel
    substeps: int
    rates: list[float] = field(default_factory=list)
    depths: list[float] = field(default_factory=list)
    bad: int = 0

    def depth(self, qpos: np.ndarray) -> float:
        """How deep the cube is in the hand, in millimetres."""
        data = mujoco.MjData(self.model)
        data.qpos[:] = qpos
        mujoco.mj_kinematics(self.model, data)
        mujoco.mj_comPos(self.model, data)
        mujoco.mj_collision(self.model, data)
        cube = self.model.geom("cube").id
        return -1e3 * min((contact.dist for contact in data.contact if cube in contact.geom), default=0.0)

    def rest(self) -> tuple[float, float]:
        """Depth in millimetres and drift in mm/s of the cube that lies on the open hand."""
        data = mujoco.MjData(self.model)
        data.joint("cube").qpos[2] = 0.53
        path, depths = [], []
        for _ in range(2 * CONTROL_HZ):
            mujoco.mj_step(self.model, data, self.substeps)
            path.append(data.joint("cube").qpos[:3].copy())
            depths.append(self.depth(data.qpos))
        return max(depths[CONTROL_HZ:]), 1e3 * float(np.linalg.norm(path[-1] - path[CONTROL_HZ]))

    def random(self, num_sims: int, control_steps: int, seed: int) -> None:
        """Random targets; notes the rate, depths in eight simulations, and bad states."""
        engine = CpuEngine(self.model, num_sims, threads=1)
        generator = torch.Generator().manual_seed(seed)
        low, high = torch.from_numpy(self.model.actuator_ctrlrange.copy()).unbind(1)
        start, rest = torch.from_numpy(self.model.qpos0).repeat(num_sims, 1), torch.zeros_like(engine.qvel)
        spent = 0.0
        for step in range(control_steps):
            if step % HOLD == 0:
                share = torch.rand(num_sims, self.model.nu, generator=generator, dtype=torch.float64)
                engine.ctrl.copy_(low + share * (high - low))
            begin = time.process_time()
            engine.step(self.substeps)
            spent += time.process_time() - begin
            self.bad += int(engine.bad.sum())
            self.depths += [self.depth(qpos) for qpos in engine.qpos[:8].numpy()]
            targets = engine.ctrl.clone()
            engine.set_state((engine.qpos[:, -7:-4] - GOAL).norm(dim=1) > DROP_DISTANCE, start, rest)
            engine.ctrl.copy_(targets)
        self.rates.append(num_sims * control_steps / spent)


def build(substeps: int, edits: list[Edit]) -> Trial:
    spec = mujoco.MjSpec.from_file(f"{robots_path[0]}/shadow_hand.xml")
    spec.option.timestep = 1 / (CONTROL_HZ * substeps)
    for edit in edits:
        edit(spec)
    return Trial(spec.compile(), substeps)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-sims", type=int, default=64)
    parser.add_argument("--control-steps", type=int, default=60)
    parser.add_argument("--repetitions", type=int, default=5)
    args = parser.parse_args()
    trials = {name: build(*variant) for name, variant in VARIANTS.items()}
    for seed in range(args.repetitions):
        for trial in trials.values():
            trial.random(args.num_sims, args.control_steps, seed)
    print(
        "| variant | control steps/s per core | rest: depth, drift | random: depth median, 95 %, largest | bad states |"
    )
    print("|---|---|---|---|---|")
    for name, trial in trials.items():
        depth, drift = trial.rest()
        middle, high, largest = np.percentile(trial.depths, (50, 95, 100))
        print(
            f"| {name} | {statistics.median(trial.rates):.0f} | {depth:.2f} mm, {drift:.2f} mm/s "
            f"| {middle:.2f}, {high:.2f}, {largest:.1f} mm | {trial.bad} |"
        )


if __name__ == "__main__":
    main()

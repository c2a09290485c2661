"""Physics settings of the Allegro hand with its cube: what each costs on one core, and how deep the cube sinks in.

    OMP_NUM_THREADS=1 python benchmarks/allegro_hand_physics.py [--num-sims 64] [--control-steps 60] [--repetitions 3]

*Rest*: cubes fall onto half-closed fingers from 5 cm; depth and drift are those of the third second, the median of
eight cubes. *Random*: the task's own starts, a uniformly random action at every step of 1/30 s. Rates are control steps
of physics per second of processor time, the median of repetitions in which the variants alternate, because the machine
may be busy with other things.
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
from echelon.tasks.allegro_hand import AllegroHand, AllegroHandConfig

CONTROL_HZ = 30
CRADLE = (0.0, 0.35, 0.5, 0.5) * 3 + (0.6, 0.3, 0.3, 0.3)
Edit = Callable[[mujoco.MjSpec], None]


def contacts(**values: object) -> Edit:
    """Attributes of all geoms that touch."""

    def edit(spec: mujoco.MjSpec) -> None:
        for geom in spec.geoms:
            for name, value in values.items() if geom.contype else ():
                setattr(geom, name, value)

    return edit


def option(**values: object) -> Edit:
    def edit(spec: mujoco.MjSpec) -> None:
        for name, value in values.items():
            setattr(spec.option, name, value)

    return edit


def no_friction_loss(spec: mujoco.MjSpec) -> None:
    for joint in spec.joints:
        joint.frictionloss = 0


def no_self_collision(spec: mujoco.MjSpec) -> None:
    for pair in list(spec.pairs):
        spec.delete(pair)


def no_speed_limit(spec: mujoco.MjSpec) -> None:
    for joint in spec.joints:
        if joint.name != "cube":
            joint.damping = np.zeros(3)


ELLIPTIC = mujoco.mjtCone.mjCONE_ELLIPTIC
VARIANTS: dict[str, tuple[int, list[Edit]]] = {
    "1/120 s × 4, contacts 17 ms (chosen)": (4, []),
    "1/180 s × 6, contacts 11 ms": (6, [contacts(solref=(0.0112, 1))]),
    "1/120 s × 4, contacts 20 ms (MuJoCo's default)": (4, [contacts(solref=(0.02, 1))]),
    "1/60 s × 2, contacts 33 ms": (2, [contacts(solref=(0.0334, 1))]),
    "chosen, 4 iterations": (4, [option(iterations=4)]),
    "chosen, 20 iterations": (4, [option(iterations=20, ls_iterations=50)]),
    "chosen, condim 4": (4, [contacts(condim=4)]),
    "chosen, elliptic cones": (4, [option(cone=ELLIPTIC)]),
    "chosen, elliptic cones, impratio 10": (4, [option(cone=ELLIPTIC, impratio=10)]),
    "chosen, without joint friction": (4, [no_friction_loss]),
    "chosen, without self-collision": (4, [no_self_collision]),
    "chosen, without the speed limit": (4, [no_speed_limit]),
}


@dataclass
class Trial:
    """A variant and what has been measured of it."""

    model: mujoco.MjModel
    substeps: int
    rates: list[float] = field(default_factory=list)
    depths: list[float] = field(default_factory=list)
    steps: int = 0
    drops: int = 0
    bad: int = 0

    def depth(self, data: mujoco.MjData) -> float:
        """How deep the cube is in the hand, in millimetres."""
        cube = self.model.geom("cube").id
        return -1e3 * min((contact.dist for contact in data.contact if cube in contact.geom), default=0.0)

    def rest(self) -> tuple[float, float]:
        """Depth in millimetres and drift in mm/s of cubes on half-closed fingers."""
        found = []
        for seed in range(8):
            data = mujoco.MjData(self.model)
            attitude = np.random.default_rng(seed).normal(size=4)
            data.qpos[:] = (0.0, -0.17, 0.6, *attitude / np.linalg.norm(attitude), *CRADLE)
            data.ctrl[:] = CRADLE
            mujoco.mj_step(self.model, data, 2 * CONTROL_HZ * self.substeps)
            before = data.qpos[:3].copy()
            mujoco.mj_step(self.model, data, CONTROL_HZ * self.substeps)
            if data.qpos[2] > 0.4:
                found.append((self.depth(data), 1e3 * float(np.linalg.norm(data.qpos[:3] - before))))
        depth, drift = np.median(found, axis=0)
        return float(depth), float(drift)

    def random(self, num_sims: int, control_steps: int, seed: int) -> None:
        """Random actions; notes the rate, depths in eight simulations, drops and bad states."""
        env = AllegroHand(AllegroHandConfig(), num_sims, torch.device("cpu"), seed)
        env.engine = engine = CpuEngine(self.model, num_sims, threads=1)
        env.reset()
        generator = torch.Generator().manual_seed(seed)
        data = mujoco.MjData(self.model)
        spent = 0.0
        for _ in range(control_steps):
            engine.ctrl.copy_(env.control(2 * torch.rand(num_sims, 16, generator=generator) - 1))
            begin = time.process_time()
            engine.step(self.substeps)
            spent += time.process_time() - begin
            for qpos in engine.qpos[:8].numpy():
                data.qpos[:] = qpos
                mujoco.mj_fwdPosition(self.model, data)
                self.depths.append(self.depth(data))
            dropped = env.failed()
            self.bad += int(engine.bad.sum())
            self.drops += int(dropped.sum())
            engine.set_state(dropped | engine.bad, *vars(env.start_state()).values())
        self.steps += num_sims * control_steps
        self.rates.append(num_sims * control_steps / spent)


def build(substeps: int, edits: list[Edit]) -> Trial:
    spec = mujoco.MjSpec.from_file(f"{robots_path[0]}/allegro_cube.xml")
    spec.option.timestep = 1 / (CONTROL_HZ * substeps)
    for edit in edits:
        edit(spec)
    return Trial(spec.compile(), substeps)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-sims", type=int, default=64)
    parser.add_argument("--control-steps", type=int, default=60)
    parser.add_argument("--repetitions", type=int, default=3)
    args = parser.parse_args()
    trials = {name: build(*variant) for name, variant in VARIANTS.items()}
    for seed in range(args.repetitions):
        for trial in trials.values():
            trial.random(args.num_sims, args.control_steps, seed)
    print(
        "| variant | control steps/s per core | rest: depth, drift | random: depth 95 %, most, steps per drop | bad |"
    )
    print("|---|---|---|---|---|")
    for name, trial in trials.items():
        depth, drift = trial.rest()
        high, largest = np.percentile(trial.depths, (95, 100))
        print(
            f"| {name} | {statistics.median(trial.rates):.0f} | {depth:.2f} mm, {drift:.2f} mm/s "
            f"| {high:.2f}, {largest:.1f} mm, {trial.steps / max(trial.drops, 1):.0f} | {trial.bad} |"
        )


if __name__ == "__main__":
    main()

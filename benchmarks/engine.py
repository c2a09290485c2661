"""Physics steps per second of `CpuEngine` against `mujoco.rollout`, on the Hopper's model with the same controls.

    python benchmarks/engine.py [--num-sims 256] [--control-steps 50] [--repetitions 15]

`mujoco.rollout` runs a whole sequence of controls inside C, so it is what the machine can do; the engine returns to
Python after every control step, as training needs it. Repetitions alternate, both start from the same states, and the
states they end in are compared to the bit. The median is reported: the machine may be busy with other things.
"""

import os
import platform
import statistics
import time

import mujoco
import numpy as np
import torch
from command import options
from mujoco import rollout

from echelon import robots
from echelon.sim.cpu import CpuEngine
from echelon.tasks.hopper import Hopper

SUBSTEPS = Hopper.substeps


class EngineRun:
    """The controls through `CpuEngine`, one control step at a time."""

    def __init__(self, model: mujoco.MjModel, qpos: np.ndarray, controls: np.ndarray) -> None:
        self.engine = CpuEngine(model, len(qpos))
        self.start = torch.from_numpy(qpos)
        self.controls = torch.from_numpy(controls)
        self.everything = torch.ones(len(qpos), dtype=torch.bool)

    def seconds(self) -> float:
        """Time of all control steps."""
        self.engine.set_state(self.everything, self.start, torch.zeros_like(self.engine.qvel))
        begin = time.perf_counter()
        for control in self.controls.unbind(1):
            self.engine.ctrl.copy_(control)
            self.engine.step(SUBSTEPS)
        return time.perf_counter() - begin

    def final_qpos(self) -> np.ndarray:
        return self.engine.qpos.numpy()


class RolloutRun:
    """The controls through `mujoco.rollout`, all in one call."""

    def __init__(self, model: mujoco.MjModel, qpos: np.ndarray, controls: np.ndarray, threads: int) -> None:
        self.model = model
        self.controls = np.repeat(controls, SUBSTEPS, axis=1)  # [N, T * substeps, nu]
        self.datas = [mujoco.MjData(model) for _ in range(threads)]
        self.initial = np.empty((len(qpos), mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
        for sim, row in enumerate(qpos):
            self.datas[0].qpos[:] = row
            mujoco.mj_getState(model, self.datas[0], self.initial[sim], mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self.pool = rollout.Rollout(nthread=threads)
        steps = self.controls.shape[1]
        self.state = np.empty((len(qpos), steps, self.initial.shape[1]))
        self.sensordata = np.empty((len(qpos), steps, model.nsensordata))

    def seconds(self) -> float:
        """Time of the one call."""
        begin = time.perf_counter()
        self.pool.rollout(
            self.model, self.datas, self.initial, self.controls, state=self.state, sensordata=self.sensordata
        )
        return time.perf_counter() - begin

    def final_qpos(self) -> np.ndarray:
        return self.state[:, -1, 1 : 1 + self.model.nq]  # after the time


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--num-sims", type=int, default=256)
    parser.add_argument("--control-steps", type=int, default=50)
    parser.add_argument("--repetitions", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)

    model, threads = robots.load("hopper"), len(os.sched_getaffinity(0))
    rng = np.random.default_rng(0)
    qpos = np.tile(Hopper.stance, (args.num_sims, 1)) + rng.uniform(-0.05, 0.05, (args.num_sims, model.nq))
    controls = rng.uniform(-1, 1, (args.num_sims, args.control_steps, model.nu))
    runs = {
        "CpuEngine": EngineRun(model, qpos, controls),
        "mujoco.rollout": RolloutRun(model, qpos, controls, threads),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run.seconds()
    for _ in range(args.repetitions):
        for name, run in runs.items():
            seconds[name].append(run.seconds())
    engine, reference = (run.final_qpos() for run in runs.values())
    np.testing.assert_array_equal(engine, reference)

    steps = args.num_sims * args.control_steps * SUBSTEPS
    print(f"{platform.machine()}, {threads} cores, load {os.getloadavg()[0]:.1f}, MuJoCo {mujoco.__version__}")
    print(f"{args.num_sims} hoppers, {args.control_steps} control steps of {SUBSTEPS} physics steps")
    for name, times in seconds.items():
        rates = sorted(steps / value / 1e3 for value in times)
        middle = statistics.median(rates)
        print(f"{name:15} {middle:6.0f} k physics steps/s (from {rates[0]:.0f} to {rates[-1]:.0f})")
    pairs = zip(seconds["mujoco.rollout"], seconds["CpuEngine"], strict=True)
    print(f"ratio, median over adjacent pairs: {statistics.median(r / e for r, e in pairs):.2f}")


if __name__ == "__main__":
    main()

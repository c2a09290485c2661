"""Does the CPU engine keep up with `mujoco.rollout`? Physics steps per second of both, on the Hopper.

    python benchmarks/engine.py [--num-sims 256] [--control-steps 50] [--repetitions 15]

`mujoco.rollout` runs a whole sequence of controls inside C, so it is what the machine can do; the engine returns to
Python after every control step, as training needs it. Repetitions alternate, both start from the same states with the
same controls, and the states they end in are compared to the bit. Medians: the machine may be busy with other things.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable

import mujoco
import numpy as np
import torch
from command import options
from mujoco import rollout

from echelon import robots
from echelon.sim.cpu import CpuEngine
from echelon.tasks.hopper import Hopper

SUBSTEPS = Hopper.substeps
Run = Callable[[], tuple[float, np.ndarray]]
"""Makes all steps from the start; returns the seconds they took and the last `qpos`."""


def with_engine(model: mujoco.MjModel, qpos: np.ndarray, controls: np.ndarray) -> Run:
    """One control step at a time."""
    engine, everything = CpuEngine(model, len(qpos)), torch.ones(len(qpos), dtype=torch.bool)
    start, inputs = torch.from_numpy(qpos), torch.from_numpy(controls)

    def run() -> tuple[float, np.ndarray]:
        engine.set_state(everything, start, torch.zeros_like(engine.qvel))
        began = time.perf_counter()
        for control in inputs.unbind(1):
            engine.ctrl.copy_(control)
            engine.step(SUBSTEPS)
        return time.perf_counter() - began, engine.qpos.numpy()

    return run


def with_rollout(model: mujoco.MjModel, qpos: np.ndarray, controls: np.ndarray, threads: int) -> Run:
    """All in one call."""
    inputs = np.repeat(controls, SUBSTEPS, axis=1)  # [N, T * substeps, nu]
    datas = [mujoco.MjData(model) for _ in range(threads)]
    initial = np.empty((len(qpos), mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
    for row, state in zip(qpos, initial, strict=True):
        datas[0].qpos[:] = row
        mujoco.mj_getState(model, datas[0], state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    pool = rollout.Rollout(nthread=threads)
    states = np.empty((*inputs.shape[:2], initial.shape[1]))
    sensors = np.empty((*inputs.shape[:2], model.nsensordata))

    def run() -> tuple[float, np.ndarray]:
        began = time.perf_counter()
        pool.rollout(model, datas, initial, inputs, state=states, sensordata=sensors)
        return time.perf_counter() - began, states[:, -1, 1 : 1 + model.nq]  # after the time

    return run


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--num-sims", type=int, default=256)
    parser.add_argument("--control-steps", type=int, default=50)
    parser.add_argument("--repetitions", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, threads, rng = robots.load("hopper"), len(os.sched_getaffinity(0)), np.random.default_rng(0)
    qpos = np.tile(Hopper.stance, (args.num_sims, 1)) + rng.uniform(-0.05, 0.05, (args.num_sims, model.nq))
    controls = rng.uniform(-1, 1, (args.num_sims, args.control_steps, model.nu))
    runs = {
        "CpuEngine": with_engine(model, qpos, controls),
        "mujoco.rollout": with_rollout(model, qpos, controls, threads),
    }
    np.testing.assert_array_equal(*(run()[1] for run in runs.values()))
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(args.repetitions):
        for name, run in runs.items():
            seconds[name].append(run()[0])
    print(f"{platform.machine()}, {threads} cores, load {os.getloadavg()[0]:.1f}, MuJoCo {mujoco.__version__}")
    print(f"{args.num_sims} hoppers, {args.control_steps} control steps of {SUBSTEPS} physics steps")
    for name, times in seconds.items():
        rates = sorted(args.num_sims * args.control_steps * SUBSTEPS / value / 1e3 for value in times)
        print(f"{name:15} {statistics.median(rates):6.0f} k physics steps/s (from {rates[0]:.0f} to {rates[-1]:.0f})")
    pairs = zip(seconds["mujoco.rollout"], seconds["CpuEngine"], strict=True)
    print(f"ratio, median over adjacent pairs: {statistics.median(r / e for r, e in pairs):.2f}")


if __name__ == "__main__":
    main()

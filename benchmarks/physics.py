"""Control steps per second of physics alone, and of a task with random actions, on a CUDA GPU.

    python benchmarks/physics.py Hopper Humanoid Anymal --num-envs 24576

Captured as a CUDA graph; random controls, no policy. Prints capacity overflow, solver limits and memory.
"""

import argparse
import time

import torch

from echelon import tasks

STEPS = 8
"""Control steps in a graph."""


def measure(name: str, num_envs: int, seconds: float) -> None:
    device = torch.device("cuda")
    torch.cuda.reset_peak_memory_stats()
    free = torch.cuda.mem_get_info()[0]
    began = time.perf_counter()
    task = tasks.make(name, tasks.info(name).config(), num_envs, device, 0, spread_clocks=True)
    task.reset()
    action = torch.rand(STEPS, num_envs, task.action_dim, device=device) * 2 - 1
    task.step(action[0])
    torch.cuda.synchronize()
    compiled = time.perf_counter() - began
    engine = task.engine

    def physics() -> None:
        engine.step(task.substeps)

    def stepping() -> None:
        task.step(action[0].uniform_(-1, 1))

    rates = {}
    for what, run in (("physics", physics), ("task", stepping)):
        graph = torch.cuda.CUDAGraph()
        if what == "task":
            graph.register_generator_state(task.generator)
        with torch.cuda.graph(graph), engine.capturing():
            for _ in range(STEPS):
                run()
        graph.replay()
        torch.cuda.synchronize()
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            graph.replay()
            count += STEPS
            torch.cuda.synchronize()
        rates[what] = count * num_envs / (time.perf_counter() - start)
    used = (free - torch.cuda.mem_get_info()[0]) / 2**30
    print(
        f"{name}: first step after {compiled:.0f} s, physics {rates['physics'] / 1e6:.2f} M/s, with task logic "
        f"{rates['task'] / 1e6:.2f} M/s, {used:.1f} GiB, overflow {engine.overflow.sum().item()}, "
        f"at iteration limit {engine.limited.float().mean().item():.1f} per world, finite "
        f"{bool(torch.isfinite(engine.qpos).all())}, {num_envs} worlds",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--num-envs", type=int, default=24576)
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    for name in args.tasks:
        measure(name, args.num_envs, args.seconds)


if __name__ == "__main__":
    main()

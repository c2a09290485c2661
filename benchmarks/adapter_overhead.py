"""Steps per second through an adapter, and of the same environment stepped bare: how much the adapter costs.

    python benchmarks/adapter_overhead.py gymnasium Walker2d-v5
    python benchmarks/adapter_overhead.py mjlab Mjlab-Velocity-Flat-Unitree-Go1 --num-envs 4096 --device cuda

Both in one process, in turns; the median of the ratios is printed. On a CPU the process's own time is taken, so that it
does not matter what else the machine does.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from echelon import make
from echelon.envs.contract import bounded

ROUNDS = 61


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=["gymnasium", "mjlab"])
    parser.add_argument("task")
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    env = make(f"{given.library}:{given.task}", given.num_envs, given.device)
    bare = env.env  # pyright: ignore[reportAttributeAccessIssue]  # what the adapter wraps
    env.reset()
    action = bounded(env)(torch.rand(given.num_envs, env.action_dim, device=env.device) * 2 - 1)
    plain = action.numpy().astype(bare.single_action_space.dtype) if given.library == "gymnasium" else action
    ratios, rates = [], []
    for number in range(ROUNDS):
        runs = [lambda: env.step(action), lambda: bare.step(plain)]
        first = number % 2  # whoever comes second finds the caches warm
        seconds = {way: _seconds(runs[way], given.steps, env.device) for way in (first, 1 - first)}
        through, alone = seconds[0], seconds[1]
        ratios.append(alone / through)
        rates.append(given.steps * given.num_envs / through)
    low, _, high = statistics.quantiles(ratios, n=4)
    print(
        f"{given.library}:{given.task}, {given.num_envs} environments on {given.device}: "
        f"{statistics.median(rates):,.0f} steps per second through the adapter, "
        f"{statistics.median(ratios):.3f} of bare (half of {ROUNDS} rounds from {low:.3f} to {high:.3f})"
    )


@torch.inference_mode()
def _seconds(step: Callable[[], object], steps: int, device: torch.device) -> float:
    """Of so many steps, after one that is not counted."""
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    began = clock()
    for _ in range(steps):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - began


if __name__ == "__main__":
    main()

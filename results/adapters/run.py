"""What an adapter costs: steps per second through it, as a share of the same environment's stepped bare.

    python results/adapters/run.py gymnasium Walker2d-v5
    python results/adapters/run.py mjlab Mjlab-Velocity-Flat-Unitree-Go1 --num-envs 4096 --device cuda

Two measurements in one run. *Inside*: every step goes through the adapter, and the time between the call of the bare
environment's step and its return is taken apart; so resets and whatever else the machine does fall on both alike. *In
turns*: a step through the adapter and a bare one, in an order drawn each time; it also sees what the adapter does
to caches, and scatters by about two per cent on a busy machine. On a CPU the process's own time is taken.
"""

import argparse
import random
import statistics
import time

import torch

from echelon import make
from echelon.envs.contract import Env, bounded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=["gymnasium", "mjlab"])
    parser.add_argument("task")
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    env = make(f"{given.library}:{given.task}", given.num_envs, given.device)
    env.reset()
    clock = Clock(env.device)
    inside, through = measure_inside(env, clock, given.steps)
    shares = measure_in_turns(env, clock, given.steps, numpy=given.library == "gymnasium")
    rate = given.steps * given.num_envs / through
    print(
        f"{given.library}:{given.task}, {given.num_envs} environments on {given.device}: {rate:,.0f} steps per second "
        f"through the adapter; inside {inside / through:.4f} of bare, in turns {statistics.median(shares):.3f} "
        f"({len(shares)} parts from {min(shares):.3f} to {max(shares):.3f})"
    )


class Clock:
    """Seconds; on CUDA when the device has done all that was asked for."""

    def __init__(self, device: torch.device) -> None:
        self.cuda, self._read = device.type == "cuda", time.process_time if device.type == "cpu" else time.perf_counter

    def __call__(self) -> float:
        if self.cuda:
            torch.cuda.synchronize()
        return self._read()


def draw_action(env: Env) -> torch.Tensor:
    return bounded(env)(torch.rand(env.num_envs, env.action_dim, device=env.device) * 2 - 1)


@torch.inference_mode()
def measure_inside(env: Env, clock: Clock, steps: int) -> tuple[float, float]:
    """Seconds within the bare environment's step, and of the whole."""
    bare = env.env  # pyright: ignore[reportAttributeAccessIssue]  # what the adapter wraps
    step, inside, through = bare.step, 0.0, 0.0

    def timed(action: object) -> object:
        nonlocal inside
        began = clock()
        found = step(action)
        inside += clock() - began
        return found

    bare.step = timed
    for number in range(steps + 5):
        if number == 5:  # the first ones load and allocate
            inside, through = 0.0, 0.0
        action = draw_action(env)
        began = clock()
        env.step(action)
        through += clock() - began
    bare.step = step
    return inside, through


@torch.inference_mode()
def measure_in_turns(env: Env, clock: Clock, steps: int, *, numpy: bool) -> list[float]:
    """Bare seconds by those through the adapter, of ten parts of the run."""
    bare = env.env  # pyright: ignore[reportAttributeAccessIssue]
    order, shares = random.Random(0), []
    for _ in range(10):
        seconds = [0.0, 0.0]
        for _ in range(steps // 10):
            for way in order.sample((0, 1), 2):
                action = draw_action(env)
                plain = action.numpy().astype(bare.single_action_space.dtype) if numpy else action
                began = clock()
                _ = bare.step(plain) if way else env.step(action)
                seconds[way] += clock() - began
        shares.append(seconds[1] / seconds[0])
    return shares


if __name__ == "__main__":
    main()

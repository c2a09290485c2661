"""Steps per second of DeceptiveReach alone, without a policy.

OMP_NUM_THREADS=1 python benchmarks/deceptive_reach_speed.py [cpu|cuda]
"""

import sys
import time

import torch

from echelon import tasks

STEPS = 100


def steps_per_second(num_envs: int, device: torch.device) -> float:
    """Of the process's own time on a CPU, which a busy machine does not distort; of wall time on CUDA."""
    env = tasks.make("DeceptiveReach", tasks.info("DeceptiveReach").config(), num_envs, device, seed=0)
    action = torch.rand(num_envs, env.action_dim, device=device) * 2 - 1
    env.reset()
    for _ in range(10):
        env.step(action)
    clock = time.process_time
    if device.type == "cuda":
        clock = time.perf_counter
        torch.cuda.synchronize()
    began = clock()
    for _ in range(STEPS):
        env.step(action)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return num_envs * STEPS / (clock() - began)


if __name__ == "__main__":
    torch.set_num_threads(1)
    device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
    for num_envs in (768, 4096, 32768, 262144):
        print(f"{num_envs:7,} environments on {device}: {steps_per_second(num_envs, device) / 1e6:7.2f} M steps/s")

"""Median milliseconds of an iteration of the quick tasks on a CPU: to compare two revisions on one machine.

    git worktree add /tmp/before REVISION
    for i in 1 2 3; do
        PYTHONPATH=/tmp/before/src python benchmarks/iterations.py
        PYTHONPATH=src python benchmarks/iterations.py
    done

It uses nothing that older revisions lack. Machines are noisy: alternate, and look at the spread.
"""

import dataclasses
import statistics
import time

import torch

from echelon import tasks
from echelon.presets import preset
from echelon.training.loop import set_up_torch
from echelon.training.trainer import Trainer

CASES = (("CartpoleSwingup", "cpo"), ("CartpoleSwingup", "ppo"), ("Hopper", "cpo"), ("DeceptiveReach", "cpo"))
BEFORE, TIMED = 4, 20


def milliseconds(task: str, algo: str) -> float:
    config = dataclasses.replace(preset(task), algo=algo, device="cpu")
    set_up_torch(config)
    env = tasks.make(task, config.env, config.num_envs, torch.device("cpu"), config.seed, spread_clocks=True)
    trainer, spent = Trainer(env, config), []
    for _ in range(BEFORE + TIMED):
        began = time.perf_counter()
        trainer.iterate()
        spent.append(1000 * (time.perf_counter() - began))
    return statistics.median(spent[BEFORE:])


if __name__ == "__main__":
    print("  ".join(f"{task} {algo} {milliseconds(task, algo):.0f}" for task, algo in CASES), flush=True)

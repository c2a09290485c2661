"""A population in one process against its members one after another: environment steps per second, and memory.

    python benchmarks/population.py --task AllegroHand --num-envs 24576 --policies 6 --iterations 100 [--json FILE]

On a CUDA GPU, or with smaller numbers on a CPU. Both sides take the same number of environment steps with the task's
preset: M members of N/M environments each in one process, then M PPO runs of N/M environments. Building and the first
iterations, in which kernels compile and graphs are recorded, are timed apart. No member is replaced in so few steps; a
takeover copies a few megabytes on the device, and its cost is measured at the end.
"""

import argparse
import dataclasses
import gc
import json
import time
from pathlib import Path
from typing import Any

import torch
from command import command
from rates import gib, used_since, wait

from echelon import tasks
from echelon.algorithms.pbt import Takeover
from echelon.bench.clock import memory
from echelon.config import TrainConfig
from echelon.presets import preset
from echelon.training.loop import choose_device, set_up_torch
from echelon.training.population_trainer import PopulationTrainer, make_trainer
from echelon.training.trainer import Trainer

FIRST = 4
"""Iterations before the clock starts: as they are, recording, two replays."""


def finished(device: torch.device) -> float:
    """The time, once the device has."""
    wait(device)
    return time.perf_counter()


def clear(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def build(config: TrainConfig, device: torch.device) -> Trainer:
    return make_trainer(tasks.make(config.task, config.env, config.num_envs, device, config.seed), config)


def measure(config: TrainConfig, device: torch.device, iterations: int) -> dict[str, Any]:
    """One process's share: how long it takes to be ready, how fast it is then, and what it holds."""
    clear(device)
    held, began = memory(device), finished(device)
    trainer = build(config, device)
    for _ in range(FIRST):
        trainer.iterate()
    ready = finished(device)
    parts: dict[str, float] = {}
    for _ in range(iterations):
        trainer.iterate()
        for name, value in trainer.timers.metrics().items():
            parts[name] = parts.get(name, 0.0) + 1000 * value / iterations
    seconds = finished(device) - ready
    steps = iterations * config.num_envs * config.update.horizon
    found: dict[str, Any] = {"ready_s": ready - began, "seconds": seconds, "steps": steps}
    found["gib"] = gib(used_since(held, device))
    if isinstance(trainer, PopulationTrainer):
        found["takeover_ms"] = 1000 * takeover(trainer, device)
    return found | {name.replace("time/", "ms_"): value for name, value in parts.items()}


def takeover(trainer: PopulationTrainer, device: torch.device) -> float:
    """Seconds to make the last member a copy of the first, hyperparameters and all."""
    values = trainer.hyperparameters()
    last = trainer.layout.policies - 1
    began = finished(device)
    trainer._apply(Takeover(last, 0, True, 0, 0.0, 0.0, values[last], values[0]))
    return finished(device) - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="AllegroHand")
    parser.add_argument("--num-envs", type=int, default=24576)
    parser.add_argument("--policies", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    device = choose_device(args.device)
    config = dataclasses.replace(preset(args.task), algo="pbt", policies=args.policies, num_envs=args.num_envs)
    # Every member does the preset's work: with mutations, some would take more passes than others.
    config = dataclasses.replace(config, pbt=dataclasses.replace(config.pbt, mutate_at_start=False))
    set_up_torch(config)
    single = dataclasses.replace(config, algo="ppo", policies=1, num_envs=args.num_envs // args.policies)
    runs = [dataclasses.replace(single, seed=seed) for seed in range(args.policies)]
    if device.type == "cuda":
        measure(runs[0], device, 1)  # compiles the kernels, for both sides alike
    together = measure(config, device, args.iterations)
    apart = [measure(run, device, args.iterations) for run in runs]
    seconds = sum(run["seconds"] for run in apart)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "task": args.task,
        "num_envs": args.num_envs,
        "policies": args.policies,
        "population_steps_per_s": together["steps"] / together["seconds"],
        "runs_steps_per_s": sum(run["steps"] for run in apart) / seconds,
        "speedup": seconds / together["seconds"],
        "population": together,
        "runs": apart,
    }
    for name, value in found.items():
        print(f"{name}: {json.dumps(value)}", flush=True)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    command(main)

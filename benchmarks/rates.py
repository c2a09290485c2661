"""How fast a task runs on a CUDA GPU: physics alone, random actions, a policy's rollout, full training; and memory.

    python benchmarks/rates.py AllegroHand ShadowHand Humanoid Anymal [--num-envs 24576] [--algo cpo] [--json FILE]

All in control steps per second over all environments. *Physics* is the engine's substeps with constant controls and
nothing else, captured as a CUDA graph; *physics in training* is likewise the substeps of a rollout, from its states
with its controls: what moves and touches takes longer than what rests. *Random* is the task with random actions,
`--random-steps` control steps, and counts steps that lost contacts (overflow) and simulations that went wrong
(quarantined). *Rollout* adds the policy, resets, scores and storage, as captured in training. *Training* is whole
iterations with the task's preset, the median of `--iterations`, with how they split, and the update's time beside its
roofline (`roofline.py`; none for a population); *memory* is what the process holds on the device then.
"""

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from command import command
from echelon.training.population_trainer import make_trainer
from roofline import update_roofline

from echelon import tasks
from echelon.bench.clock import memory
from echelon.bench.physics import physics_of
from echelon.config import ALGORITHMS, TrainConfig
from echelon.config.checks import require_device
from echelon.device.capture import Captured
from echelon.presets import preset
from echelon.training.loop import set_up_torch
from echelon.training.resolve import resolve
from echelon.training.trainer import Trainer

STEPS = 8
"""Control steps in a graph."""
SOME_REWARD = 0.01
"""Adversarial coefficient where it is asked for and the preset has none; time does not depend on it."""
DEVICE = torch.device("cuda")


def wait(device: torch.device) -> None:
    """Until the device has done what it was asked to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rate(run: Callable[[], object], steps: int, seconds: float, device: torch.device = DEVICE) -> float:
    """Environment steps per second of a call that makes `steps`; called twice before it is timed."""
    for _ in range(2):
        run()
    wait(device)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        run()
        wait(device)
        count += steps
    return count / (time.perf_counter() - began)


def physics_rate(env: Any, seconds: float) -> float:
    """Control steps per second of captured substeps, with the controls as they are."""

    def physics() -> None:
        for _ in range(STEPS):
            env.engine.step(env.substeps)

    captured = Captured(physics, env.device, around=env.capturing)
    return rate(captured, STEPS * env.num_envs, seconds, env.device)


def trained_physics_rate(trainer: Trainer, seconds: float) -> float:
    """Control steps per second of captured substeps, from states and with controls of training; after an iteration."""
    env: Any = trainer.env
    actions = trainer.collector.rollout.action.clone()
    captured = Captured(physics_of(env, actions), env.device, around=env.capturing)
    return rate(captured, len(actions) * env.num_envs, seconds, env.device)


def rollout_rate(trainer: Trainer, seconds: float) -> float:
    """Control steps per second of collecting, as captured in training; after an iteration."""
    env = trainer.env
    return rate(trainer._collect, trainer.config.update.horizon * env.num_envs, seconds, env.device)


def random_steps(env: Any, count: int) -> dict[str, float]:
    """So many control steps of random actions: their rate, and what went wrong in them."""
    device = env.device
    action = torch.zeros(env.num_envs, env.action_dim, device=device)
    totals = torch.zeros(2, device=device)
    limited = getattr(env.engine, "limited", totals.new_zeros(1))  # not counted on a CPU

    def run() -> None:
        for _ in range(STEPS):
            step = env.step(action.uniform_(-1, 1, generator=env.generator))
            totals.add_(torch.stack((step.log["overflow"].sum(), step.log["quarantined"].sum())))

    captured = Captured(run, device, (env.generator,), env.capturing)
    for _ in range(2):
        captured()
    wait(device)
    totals.zero_()
    limited.zero_()
    began = time.perf_counter()
    replays = -(-count // STEPS)
    for _ in range(replays):
        captured()
    wait(device)
    steps = replays * STEPS * env.num_envs
    overflow, quarantined = totals.tolist()
    return {
        "random": steps / (time.perf_counter() - began),
        "overflow": overflow / steps,
        "quarantined": quarantined,
        "at_solver_limit": limited.sum().item() / steps,
        "finite": bool(torch.isfinite(env.engine.qpos).all() and torch.isfinite(env.engine.qvel).all()),
    }


def training(trainer: Trainer, iterations: int) -> dict[str, float]:
    """Medians over whole iterations, timed on the host; parts on the device."""
    for _ in range(3):  # as it is, recording, a first replay
        trainer.iterate()
    seconds: list[float] = []
    parts: dict[str, list[float]] = {}
    for _ in range(iterations):
        began = time.perf_counter()
        trainer.iterate()
        seconds.append(time.perf_counter() - began)
        for name, value in trainer.timers.metrics().items():
            parts.setdefault(name.replace("time/", "ms_"), []).append(1000 * value)
    steps = trainer.env.num_envs * trainer.config.update.horizon
    median = statistics.median(seconds)
    return {"training": steps / median, "ms_iteration": 1000 * median} | {
        name: statistics.median(values) for name, values in parts.items()
    }


def settings(
    task: str, algo: Any, num_envs: int, adversary: str | None, precision: Any = TrainConfig.precision
) -> TrainConfig:
    """The task's preset for an algorithm, with the adversarial reward as it is there, or `on` or `off`."""
    config = dataclasses.replace(preset(task), algo=algo, num_envs=num_envs, precision=precision)
    coef = {None: config.adversary.coef, "off": 0.0, "on": config.adversary.coef or SOME_REWARD}[adversary]
    return dataclasses.replace(config, adversary=dataclasses.replace(config.adversary, coef=coef))


def over_roofline(trainer: Trainer, update_ms: float) -> dict[str, float]:
    """The update's roofline, and how many times that it took; nothing for a population.

    What is counted is one network that all policies share. Members have one each, and passes that mutate.
    """
    if trainer.config.algo == "pbt":
        return {}
    found = update_roofline(trainer.config, trainer.env.obs_spec, trainer.env.action_dim)
    return found | {"update_over_roofline": update_ms / found["roofline_ms"]}


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A training that is built and compiled, with what that took."""

    trainer: Trainer
    seconds: float
    """Until the environments could step."""
    held: int | None
    """Bytes of the device that were in use before."""
    physics: int | None
    """Bytes of the device that the environments took."""

    def taken(self) -> int | None:
        """Bytes of the device that this process has taken."""
        return used_since(self.held, self.trainer.env.device)


def used_since(held: int | None, device: torch.device) -> int | None:
    now = memory(device)
    return None if now is None or held is None else now - held


def prepare(config: TrainConfig, device: torch.device) -> Prepared:
    """Up to the end of the first iteration."""
    resolve(config)
    set_up_torch(config)
    held, began = memory(device), time.perf_counter()
    env: Any = tasks.make(config.task, config.env, config.num_envs, device, 0, spread_clocks=True)
    env.reset()
    wait(device)
    seconds, physics = time.perf_counter() - began, used_since(held, device)
    trainer = make_trainer(env, config)
    trainer.iterate()
    return Prepared(trainer, seconds, held, physics)


def measure(prepared: Prepared, seconds: float, iterations: int, random: int = 0) -> dict[str, Any]:
    """All figures; `random` control steps of random actions, if any."""
    trainer, env, config = prepared.trainer, prepared.trainer.env, prepared.trainer.config
    found: dict[str, Any] = {"task": config.task, "algo": config.algo, "num_envs": config.num_envs}
    found |= {"precision": config.precision, "adversary": trainer.adversary is not None}
    found |= {"contacts": env.config.contacts, "constraints": env.config.constraints, "ready_s": prepared.seconds}
    found["rollout"] = rollout_rate(trainer, seconds)
    found |= training(trainer, iterations)
    found |= over_roofline(trainer, found["ms_update"])
    found |= {"physics_gib": gib(prepared.physics), "gib": gib(prepared.taken())}
    found["physics_in_training"] = trained_physics_rate(trainer, seconds)
    env.reset()
    found["physics"] = physics_rate(env, seconds)
    return found | (random_steps(env, random) if random else {})


def gib(size: int | None) -> float | None:
    return None if size is None else size / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--num-envs", type=int, default=24576)
    parser.add_argument("--algo", choices=ALGORITHMS, default="cpo")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--precision", choices=("tf32", "fp32", "bf16"), default=TrainConfig.precision)
    parser.add_argument("--adversary", choices=("on", "off"), help="the preset's unless given; only cpo has one")
    parser.add_argument("--seconds", type=float, default=4, help="of physics alone, and of the rollout")
    parser.add_argument("--random-steps", type=int, default=1000, help="0 leaves them out")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--json", type=Path, help="append a line per task to this file")
    args = parser.parse_args()
    require_device(args.device)
    if len(args.tasks) > 1:  # a process each, so that memory is that of one
        options = [
            f"--{name.replace('_', '-')}={value}"
            for name, value in vars(args).items()
            if value is not None and name != "tasks"
        ]
        for task in args.tasks:
            if subprocess.run([sys.executable, __file__, task, *options]).returncode:
                sys.exit(f"error: {task} failed, as said above")
        return
    config = settings(args.tasks[0], args.algo, args.num_envs, args.adversary, args.precision)
    found = measure(prepare(config, torch.device(args.device)), args.seconds, args.iterations, args.random_steps)
    print(json.dumps(found, indent=1), flush=True)
    if args.json:
        with args.json.open("a") as file:
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    command(main)

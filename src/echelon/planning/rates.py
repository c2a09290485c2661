"""What one GPU does in an iteration: measured here, read from a bench, or published."""

import dataclasses
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from echelon.config import TrainConfig
from echelon.errors import UserError, first_line
from echelon.planning.model import Rates
from echelon.presets import stored_config
from echelon.tasks import maker
from echelon.training.loop import set_up_torch
from echelon.training.resolve import Resolved, resolve
from echelon.training.trainer import Trainer, make_model

WARM_UPS = 3
"""Iterations before the clock starts: as they are, recording, a first replay."""
SMALLER = 4
"""The floor of a step is found by a second measurement with so many times fewer environments."""
H200_FLOOR_S = 0.284e-3
"""Of an optimizer step on an H200: AllegroHand's 20 steps take 9.33 ms with 4,096 environments and 27.57 with 24,576,
so 5.68 ms with none (results/growth)."""
H200_ENVS = 24_576
H200: dict[tuple[str, str], tuple[float, float]] = {
    ("AllegroHand", "cpo"): (130.8, 27.6),
    ("AllegroHand", "no_adversary"): (115.8, 27.6),
    ("AllegroHand", "sapg"): (116.4, 18.4),
    ("AllegroHand", "ppo"): (118.2, 15.1),
    ("ShadowHand", "cpo"): (155.7, 45.7),
    ("Humanoid", "cpo"): (210.4, 95.8),
    ("Anymal", "cpo"): (222.6, 91.8),
    ("AllegroKukaReorientation", "cpo"): (328.6, 214.4),
    ("FrankaCubeStack", "cpo"): (235.5, 227.6),
}
"""Milliseconds of an iteration on one H200, without and in the update (results/speed/h200.jsonl, the first run);
`--algo cpo` is no_adversary on the hands, `--preset paper --algo cpo` is cpo."""


def measured(resolved: Resolved, iterations: int, say: Callable[[str], None] = lambda text: None) -> Rates:
    """Train a few iterations here, then a few with fewer environments."""
    config = resolved.config
    collect, update, steps, parameters = _time(resolved, iterations, say)
    floor = 0.0
    fewer = dataclasses.replace(config, num_envs=config.num_envs // SMALLER, envs_per_policy=())
    try:
        small = resolve(dataclasses.replace(fewer, update=_same_minibatches(config, resolved)))
        floor = step_floor(update, _time(small, iterations, say)[1], SMALLER, steps)
    except UserError:
        pass  # so few environments do not split: the floor stays unknown, and counts as none
    return Rates(config.steps_per_iteration, collect, update, steps, floor, parameters, f"measured on {_here(config)}")


def step_floor(whole_s: float, part_s: float, smaller: int, steps: int) -> float:
    """What a step takes without rows, if its time is a line: `whole_s` an update, `part_s` one with fewer rows."""
    return max(0.0, (smaller * part_s - whole_s) / (smaller - 1)) / steps


def from_bench(path: Path, task: str) -> Rates:
    """Of a file that `echelon bench TASK --json` wrote."""
    try:
        found = json.loads(path.read_text())
        iteration, update = found["iteration_ms"] / 1000, found["parts_ms"]["update"] / 1000
        optimizer = found["parts_ms"].get("update/optimizer", 0.0) / 1000
        device, config = str(found["device"]), stored_config(found["config"])
        if not 0 < update < iteration < math.inf or not 0 <= optimizer < math.inf:
            raise ValueError("its times make no sense")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError) as error:
        raise UserError(f"{path} is not a file of echelon bench ({first_line(error)}); write one with --json") from None
    if config.task != task:
        raise UserError(f"{path} is of {config.task}, not of {task}; write one with echelon bench {task} --json FILE")
    steps, parameters = _sizes(config)
    floor = H200_FLOOR_S if device != "cpu" else optimizer / steps
    return Rates(config.steps_per_iteration, iteration - update, update, steps, floor, parameters, f"{path}, {device}")


def published(config: TrainConfig) -> Rates:
    """Of one H200, as the page on performance has it."""
    known = H200.get((config.task, config.method))
    if known is None or config.num_envs != H200_ENVS:
        cases = ", ".join(f"{task} {method}" for task, method in H200)
        raise UserError(
            f"there are no published rates of {config.task} {config.method} with {config.num_envs} environments, only "
            f"with {H200_ENVS} of {cases}; leave out --rates to measure here"
        )
    steps, parameters = _sizes(config)
    collect, update = (milliseconds / 1000 for milliseconds in known)
    return Rates(config.steps_per_iteration, collect, update, steps, H200_FLOOR_S, parameters, "published of one H200")


def _time(resolved: Resolved, iterations: int, say: Callable[[str], None]) -> tuple[float, float, int, int]:
    """Seconds of an iteration without and in its update, optimizer steps, parameters."""
    config = resolved.config
    set_up_torch(config)
    say(f"{config.num_envs} environments")
    env = maker(config, spread_clocks=True)(config.num_envs, resolved.device, config.seed)
    trainer = Trainer(env, config, resolved.plan)
    for _ in range(WARM_UPS):
        trainer.iterate()
    whole: list[float] = []
    update: list[float] = []
    for number in range(iterations):
        say(f"{config.num_envs} environments, iteration {number + 1} of {iterations}")
        began = time.perf_counter()
        trainer.iterate()  # reads its metrics, so the device has finished
        whole.append(time.perf_counter() - began)
        update.append(trainer.timers.metrics()["time/update"])
    parameters = sum(x.numel() for x in trainer.model.parameters())
    learning = statistics.median(update)
    return statistics.median(whole) - learning, learning, trainer.steps_per_iteration, parameters


def _same_minibatches(config: TrainConfig, resolved: Resolved) -> Any:
    return dataclasses.replace(config.update, minibatches=resolved.plan.minibatches, minibatch_rows=None)


def _sizes(config: TrainConfig) -> tuple[int, int]:
    """Optimizer steps of an iteration, and parameters, of a run that need not fit here."""
    resolved = resolve(config, elsewhere=config.device if config.device != "auto" else "cpu")
    config = resolved.config
    env = maker(config)(config.num_policies, torch.device("cpu"), config.seed)
    with torch.device("meta"):
        parameters = sum(x.numel() for x in make_model(env, config).parameters())
    return config.update.mini_epochs * resolved.plan.minibatches, parameters


def _here(config: TrainConfig) -> str:
    return torch.cuda.get_device_name() if config.device == "cuda" else "this machine's CPU"

"""Runs of a second, for tests of what is around them."""

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from echelon.config import ModelConfig, TrainConfig
from echelon.envs.contract import Step
from echelon.ranks import ALONE, Ranks
from echelon.tasks import make, preset
from echelon.training.setup import make_trainer
from echelon.training.trainer import Trainer

PATIENCE = 900.0
"""Seconds to wait for a process; nothing takes that long but on a machine that is busy with something else."""


def tiny(
    task: str, out: Path, algo: str = "cpo", lstm: int = 0, env: Mapping[str, Any] | None = None, **changes: Any
) -> TrainConfig:
    """A task's preset with six environments, three policies, two iterations of four steps, and a small network."""
    config = preset(task)
    small: dict[str, Any] = {
        "algo": algo,
        "policies": None if algo == "ppo" else 3,
        "num_envs": 6,
        "iterations": 2,
        "checkpoint_every": 1,
        "device": "cpu",
        "out": str(out),
        "env": replace(config.env, **env or {}),
        "model": ModelConfig(hidden=(8,), lstm=lstm, phi_dim=2),
        "update": replace(config.update, horizon=4, sequence=2, mini_epochs=1),
    }
    return replace(config, **small | changes)


def unfused(task: str, algo: str, lstm: int = 0, **changes: Any) -> TrainConfig:
    """A task's preset with 192 environments and a small network, as tests on a GPU compare it."""
    config, model = preset(task), ModelConfig(hidden=(32, 32), lstm=lstm)
    return replace(config, **{"algo": algo, "num_envs": 192, "model": model, "fuse": False} | changes)


def build(config: TrainConfig, device: str, ranks: Ranks = ALONE) -> Trainer:
    where, seed = torch.device(device), ranks.seed(config.seed)
    env = make(config.task, config.env, config.num_envs, where, seed, spread_clocks=True)
    return make_trainer(env, config, ranks=ranks)


def disturbed(env: Any, disturb: Callable[[int, Step], Step | None]) -> Any:
    """`env`, each of whose steps passes through `disturb` with its number, from 1, and may be replaced."""
    step, numbers = env.step, itertools.count(1)
    env.step = lambda action: disturb(next(numbers), found := step(action)) or found
    return env


def timeless(run: Path) -> list[dict[str, float]]:
    """A run's metrics without those that a clock made."""
    lines, clocks = (run / "metrics.jsonl").read_text().splitlines(), ("wall_s", "fps/", "time/")
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(clocks)} for line in lines]


def differing(a: Any, b: Any, where: str = "state", **close: float) -> list[str]:
    """Names of parts of two nested states that are not equal to the bit, or for `rtol` and `atol` not close."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return [name for key in a for name in differing(a[key], b[key], f"{where}/{key}", **close)]
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return [] if str(a) == str(b) else [where]
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return [where]
    if close and a.is_floating_point():
        return [] if torch.allclose(a, b, **close, equal_nan=True) else [where]
    ours, theirs = (x.flatten().contiguous().view(torch.uint8) for x in (a, b))
    return [] if ours.equal(theirs) else [where]

"""Run folders as a trainer would have written them, for reports of any size."""

import base64
import gzip
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from echelon.algorithms import BUILT_IN, CpoTrainConfig, Preset, converted
from echelon.config import TrainConfig, to_dict

LEVELS = {"ppo": 60.0, "pbt": 75.0, "sapg": 90.0, "cpo": 120.0}
"""Final returns, on the way to which the curves of each algorithm rise."""
COLOURS = {"cpo": 0, "sapg": 1, "ppo": 2, "pbt": 3}
"""Places in the palette, as the algorithms have them."""


def write_run(
    folder: Path,
    algo: str = "cpo",
    *,
    task: str = "CartpoleSwingup",
    seed: int = 0,
    iterations: int = 40,
    planned: int | None = None,
    level: float | None = None,
    **settings: Any,
) -> Path:
    """A run folder named after its task, method and seed, with curves that rise to `level`."""
    settings = {"policies": 1 if algo == "ppo" else 6, "num_envs": 96} | settings
    config = Preset(task=task, algo=algo, seed=seed, iterations=planned or iterations, **settings)
    config = converted(config, BUILT_IN.get(algo, TrainConfig))
    path = folder / f"{task}-{config.method}-s{seed}"
    started, hardware = "2026-01-01T00:00:00+00:00", {"cpu": "a CPU", "cores": 2, "gpu": None}
    session = {"started": started, "hardware": hardware, "git_revision": "0123456789abcdef+changes"}
    document = {"created": started, "config": to_dict(config), "colour": COLOURS.get(algo), "sessions": [session]}
    (path / "diagnostics").mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(document))
    generator = np.random.default_rng([seed, len(task), *algo.encode()])
    lines = [_line(config, i, generator, LEVELS[algo] if level is None else level) for i in range(1, iterations + 1)]
    write_lines(path, lines)
    if config.num_policies > 1:
        maps = [_distances(config, i, generator, iterations) for i in range(1, iterations + 1, 10)]
        write_lines(path, maps, "diagnostics/kl.jsonl")
    return path


def write_lines(run: Path, lines: Iterable[Any], file: str = "metrics.jsonl") -> None:
    (run / file).write_text("".join(json.dumps(line) + "\n" for line in lines))


def data_of(page: Path) -> dict[str, Any]:
    """The data of a page."""
    (packed,) = re.findall(r'id="data">([^<]*)<', page.read_text())
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def write_evaluation(path: Path, value: float, iteration: int) -> None:
    """What `echelon evaluate` leaves: the leader scores `value`, policy k 0.9^k of it, sampling 0.8."""
    policies = json.loads((path / "config.json").read_text())["config"]["policies"]
    scores = [
        {"policy": k, "mode": mode, "episodes": 64, "return_mean": value * 0.9**k * factor, "return_std": 1.0}
        | {"length_mean": 100.0, "terminated": 0.0, "extra": {"upright_late": 0.5, "broken": None}}
        for mode, factor in (("deterministic", 1.0), ("sampled", 0.8))
        for k in range(policies)
    ]
    document = {"task": "", "algo": "", "iteration": iteration, "env_steps": 0, "seed": 1000, "leader": 0}
    (path / "evaluation.json").write_text(json.dumps(document | {"scores": scores}))


def _line(config: TrainConfig, i: int, generator: np.random.Generator, level: float) -> dict[str, Any]:
    """One iteration. The first has no finished episode."""
    grown = level * (1 - math.exp(-4 * i / config.num_iterations))
    returns = grown * (1 - 0.08 * np.arange(config.num_policies)) + generator.normal(0, 3, config.num_policies)
    line: dict[str, Any] = {"iteration": i, "env_steps": i * 96 * config.update.horizon, "wall_s": i * 0.25}
    line["gradient_steps"], line["evaluated/leader"] = i * (10 if config.algo == "cpo" else 5), grown
    line |= {"fps/total": 6000 + 50 * generator.normal(), "return/leader": None if i == 1 else returns[0]}
    line |= {"upright_late/leader": min(1.0, grown / 150), "time/collect": 0.06, "time/update": 0.15 + 0.01 * (i % 3)}
    line |= {"time/targets": 0.01, "time/diagnostics": 0.02 * (i % 10 == 1), "loss/actor": generator.normal()}
    if config.num_policies > 1:
        line |= {f"return/policy_{k}": value for k, value in enumerate(returns)}
        if config.algo == "pbt":
            line |= {f"objective/policy_{k}": value for k, value in enumerate(returns)}
        if i % 10 == 1:
            spread = (0.9 if config.algo == "sapg" else 0.35) * (1 - math.exp(-6 * i / config.num_iterations))
            line |= {"is_deviation": spread, "ess": 1 / (1 + spread**2), "kl/follower_to_leader": spread**2}
            line |= {"nearest_is_leader": 0.4}
    line |= {f"sigma/policy_{k}": 0.5 + 0.01 * generator.random() for k in range(config.num_policies)}
    line |= {
        f"{name}/policy_{k}": generator.random() for k in range(config.num_policies) for name in ("length", "entropy")
    }
    line |= {f"loss/{k}": generator.random() for k in range(24)}  # what the report does not show
    if isinstance(config, CpoTrainConfig) and config.adversary.coef:
        line |= {"adversary/loss": 1 + 0.79 * math.exp(-i / 10), "adversary/accuracy": 0.5}
    return line


def _distances(config: TrainConfig, i: int, generator: np.random.Generator, iterations: int) -> dict[str, Any]:
    """Policies on a line that drift apart; some seeds put the leader in their middle."""
    places = generator.permutation(config.num_policies) * 0.2 * (0.1 + i / iterations)
    matrix = (places[:, None] - places[None, :]) ** 2 + 0.01 * (1 - np.eye(config.num_policies))
    return {"iteration": i, "env_steps": i * 96 * config.update.horizon, "kl": matrix.tolist()}

"""Does one spike in an observation or a reward ruin a run? A point is steered to the origin; one number is wrong, once.

    PYTHONPATH=benchmarks python results/spikes/run.py --seeds 10 --json results/spikes/cpu.jsonl

CPO with three policies in 48 environments, 50,000 steps; the spike is in environment 5 at control step 200 of 1,042. `unlimited`
arms take every number in full, as versions without the limit did.
"""

import contextlib
import io
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from command import Row, append, command, markdown, options
from torch import Tensor

from echelon import train
from echelon.algorithms import CpoTrainConfig
from echelon.config import DiagnosticsConfig, ModelConfig, UpdateConfig
from echelon.envs.contract import Groups, Step
from echelon.models import normaliser
from echelon.runs.metrics import read_metrics

STEP, ENVIRONMENT, LAST = 200, 5, 10
SIZES = [10.0**power for power in range(3, 11)]
"""Beyond the last one a run ends with a sentence."""
CONFIG = CpoTrainConfig(
    task="Point",
    policies=3,
    num_envs=48,
    env_steps=50_000,
    device="cpu",
    model=ModelConfig(hidden=(32,)),
    update=UpdateConfig(horizon=16, mini_epochs=3, minibatches=4, learning_rate=3e-4),
    diagnostics=DiagnosticsConfig(every=0),
)


class Point:
    """A point with velocity in the plane, paid for being near the origin. Episodes of 32 steps end at different times."""

    action_dim, obs_spec, episode_length = 2, {"policy": 4}, 32

    def __init__(self, num_envs: int, device: torch.device, seed: int, where: str, size: float) -> None:
        self.num_envs, self.device, self.where, self.size, self.steps = num_envs, device, where, size, 0
        self.generator = torch.Generator().manual_seed(seed)

    def spiked(self, where: str, x: Tensor, place: tuple[int, ...]) -> Tensor:
        if self.where == where and self.steps == STEP:
            x = x.clone()
            x[place] = self.size
        return x

    def start(self) -> tuple[Tensor, Tensor]:
        place, speed = torch.randn(2, self.num_envs, 2, generator=self.generator)
        return place, 0.1 * speed

    def obs(self) -> Groups:
        return {"policy": self.spiked("observation", torch.cat((self.place, self.speed), 1), (ENVIRONMENT, 1))}

    def reset(self) -> Groups:
        self.place, self.speed = self.start()
        self.clock = torch.randint(0, self.episode_length, (self.num_envs,), generator=self.generator)
        return self.obs()

    def step(self, action: Tensor) -> Step:
        self.steps += 1
        self.speed = 0.8 * self.speed + 0.2 * action
        self.place = self.place + 0.3 * self.speed
        reward = self.spiked("reward", -0.3 * self.place.square().sum(1).clamp(max=25), (ENVIRONMENT,))
        self.clock += 1
        over, last = self.clock >= self.episode_length, self.obs()
        place, speed = self.start()
        self.place = torch.where(over[:, None], place, self.place)
        self.speed = torch.where(over[:, None], speed, self.speed)
        self.clock = torch.where(over, 0, self.clock)
        return Step(self.obs(), reward, torch.zeros_like(over), over, last)


def run(where: str, size: float, seed: int, unlimited: bool) -> Row:
    """The leader's return, averaged over the last iterations, and how many warnings were printed."""
    normaliser.ENOUGH = float("inf") if unlimited else 1_000
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as place:
        config = replace(CONFIG, seed=seed, out=f"{place}/run")
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            folder = train(config, make_env=lambda envs, device, seed: Point(envs, device, seed, where, size))
        returns = [line["return/leader"] for line in read_metrics(folder)[-LAST:]]
    warnings = [line for line in said.getvalue().splitlines() if "WARNING" in line]
    named = [f"environment {ENVIRONMENT}" in line for line in warnings]
    row = {"where": where, "size": size, "seed": seed, "unlimited": unlimited}
    return row | {"return": statistics.mean(returns), "warnings": len(warnings), "named": all(named)}


def table(rows: list[Row]) -> str:
    arms = list(dict.fromkeys((row["where"], row["size"], row["unlimited"]) for row in rows))
    lines = []
    for where, size, unlimited in arms:
        found = [row for row in rows if (row["where"], row["size"], row["unlimited"]) == (where, size, unlimited)]
        returns, warnings = [row["return"] for row in found], sorted({row["warnings"] for row in found})
        arm = f"{where} {size:g}" + (", taken in full" if unlimited else "") if where else "clean"
        lines.append(
            [
                arm,
                f"{statistics.mean(returns):.2f}",
                f"{min(returns):.2f} to {max(returns):.2f}",
                " or ".join(map(str, warnings)),
            ]
        )
    return markdown(["spike", "mean return", "seeds' range", "warnings a run"], lines)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="append a line per run to this file")
    args = parser.parse_args()
    arms = [("", 0.0, False), *((where, size, False) for where in ("observation", "reward") for size in SIZES)]
    arms += [("observation", 1e5, True), ("reward", 1e6, True)]
    rows: list[Row] = []
    for where, size, unlimited in arms:
        found = [run(where, size, seed, unlimited) for seed in range(args.seeds)]
        append(args.json, found)
        rows += found
    print(table(rows))


if __name__ == "__main__":
    command(main)

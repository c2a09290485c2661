"""PPO, SAPG and CPO on DeceptiveReach, twenty seeds each, at equal environment steps.

    OMP_NUM_THREADS=1 python benchmarks/deceptive_reach_study.py --workers 1

Every run is a run folder under `runs/deceptive_reach`; what it came to is a line of `results/deceptive_reach/runs.csv`
and its learning curve twenty lines of `curves.csv`. Runs that have their line are skipped and unfinished ones resumed,
so the same command goes on where it was stopped. At the end the summary is drawn from those two files.
"""

import argparse
import csv
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, here and in the workers: they share few cores

import torch
from deceptive_reach_summary import RESULTS, write_summary

from echelon.config import TrainConfig
from echelon.evaluate import Evaluation, PolicyScore, evaluate
from echelon.presets import preset
from echelon.presets.variants import VARIANTS
from echelon.runs.metrics import read_metrics
from echelon.train import train

RUNS = Path("runs/deceptive_reach")
EPISODES = 256
CURVE_POINTS = 20
DIAGNOSTICS = ("is_deviation", "ess", "kl/follower_to_leader", "nearest_is_leader", "pull/weight", "pull/at_cap")
"""Averaged over a whole run; empty where a method has none."""


def _ppo_entropy(config: TrainConfig) -> TrainConfig:
    """PPO with the entropy bonus that the ensemble's policies get on average."""
    update = replace(config.update, entropy_coef=config.update.entropy_scale / 4)
    return replace(config, algo="ppo", update=update)


def _ppo_cpo_steps(config: TrainConfig) -> TrainConfig:
    """PPO with as many optimizer steps per iteration as CPO takes."""
    return replace(config, algo="ppo", update=VARIANTS["sapg_cpo_steps"](config).update)


def _group_scope(config: TrainConfig) -> TrainConfig:
    """Advantages normalised within each group of rows, instead of over all of them together."""
    return replace(config, ensemble=replace(config.ensemble, advantage_scope="group"))


METHODS: dict[str, Callable[[TrainConfig], TrainConfig]] = {
    "ppo": lambda config: replace(config, algo="ppo"),
    "sapg": lambda config: replace(config, algo="sapg"),
    "sapg_cpo_steps": VARIANTS["sapg_cpo_steps"],
    "cpo": lambda config: replace(config, algo="cpo"),
}
CONTROLS: dict[str, Callable[[TrainConfig], TrainConfig]] = {
    "ppo_entropy": _ppo_entropy,
    "ppo_cpo_steps": _ppo_cpo_steps,
    "no_pull": VARIANTS["no_pull"],
    "cpo_group": lambda config: _group_scope(replace(config, algo="cpo")),
    "sapg_cpo_steps_group": lambda config: _group_scope(VARIANTS["sapg_cpo_steps"](config)),
}
"""Not part of the comparison; they say why it came out as it did."""


@dataclass(frozen=True)
class Outcome:
    """What one run came to: lines for the two tables."""

    row: dict[str, Any]
    curve: list[dict[str, Any]]


def run(method: str, seed: int) -> Outcome:
    """Train and evaluate one run, in this process, on one thread."""
    torch.set_num_threads(1)
    change = (METHODS | CONTROLS)[method]
    config = change(replace(preset("DeceptiveReach"), seed=seed, device="cpu", out=str(RUNS / f"{method}-s{seed}")))
    began = time.process_time()
    folder = train(config)
    seconds = time.process_time() - began
    metrics = read_metrics(folder)
    row = {"method": method, "seed": seed, "env_steps": int(metrics[-1]["env_steps"])}
    row |= _scores(evaluate(folder, num_envs=EPISODES, device="cpu")) | _course(metrics)
    row |= {"wall_s": metrics[-1]["wall_s"], "cpu_s": seconds}
    return Outcome(row, _curve(method, seed, metrics))


def _scores(evaluation: Evaluation) -> dict[str, float]:
    """The leader acting both ways, and the best of its followers."""

    def successes(score: PolicyScore) -> float:
        return score.extra["successes"]

    row: dict[str, float] = {}
    for mode in ("deterministic", "sampled"):
        leader, *followers = (score for score in evaluation.scores if score.mode == mode)
        row |= {f"return_{mode}": leader.return_mean, f"successes_{mode}": successes(leader)}
        if mode == "deterministic" and followers:
            row["best_follower_successes"] = max(map(successes, followers))
    return row


def _course(metrics: list[dict[str, float]]) -> dict[str, float]:
    """Milestones in environment steps, spread of the policies, and diagnostics. What did not happen is left out."""
    row: dict[str, float] = {}
    anybody = (line for line in metrics if any(line[name] > 0 for name in line if name.startswith("successes/")))
    leader = (line for line in metrics if line["successes/leader"] >= 0.5)
    for name, lines in (("first_success_steps", anybody), ("leader_half_steps", leader)):
        if (line := next(lines, None)) is not None:
            row[name] = int(line["env_steps"])
    sigmas = [[line[name] for name in line if name.startswith("sigma/")] for line in metrics]
    row["sigma_leader"] = statistics.fmean(sigma[0] for sigma in sigmas)
    if len(sigmas[0]) > 1:
        row["sigma_followers"] = statistics.fmean(statistics.fmean(sigma[1:]) for sigma in sigmas)
    for name in DIAGNOSTICS:
        values = [line[name] for line in metrics if name in line]
        if values:
            row[name] = statistics.fmean(values)
    return row


def _curve(method: str, seed: int, metrics: list[dict[str, float]]) -> list[dict[str, Any]]:
    """The leader's training episodes at evenly spaced times, the last iteration included."""
    picked = [metrics[(i + 1) * len(metrics) // CURVE_POINTS - 1] for i in range(CURVE_POINTS)]
    return [
        {
            "method": method,
            "seed": seed,
            "env_steps": int(line["env_steps"]),
            "return": line["return/leader"],
            "successes": line["successes/leader"],
        }
        for line in picked
    ]


COLUMNS = (
    *("method", "seed", "env_steps", "return_deterministic", "return_sampled"),
    *("successes_deterministic", "successes_sampled", "best_follower_successes"),
    *("first_success_steps", "leader_half_steps", "sigma_leader", "sigma_followers"),
    *DIAGNOSTICS,
    *("wall_s", "cpu_s"),
)
CURVE_COLUMNS = ("method", "seed", "env_steps", "return", "successes")


def append(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Add lines to a table, on the disk when this returns."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(columns), lineterminator="\n")
        if new:
            writer.writeheader()
        for row in rows:
            writer.writerow({name: f"{x:.6g}" if isinstance(x, float) else x for name, x in row.items()})


def finished() -> set[tuple[str, int]]:
    """Method and seed of every run that has its line."""
    path = RESULTS / "runs.csv"
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {(row["method"], int(row["seed"])) for row in csv.DictReader(file)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS | CONTROLS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=20, help="seeds 0 to this, without it")
    parser.add_argument("--workers", type=int, default=1, help="processes of one thread each")
    args = parser.parse_args()

    RESULTS.mkdir(parents=True, exist_ok=True)
    # Seed by seed, so that a study that is stopped early still compares all methods.
    todo = [(method, seed) for seed in range(args.seeds) for method in args.methods]
    todo = [job for job in todo if job not in finished()]
    print(f"{len(todo)} runs to do", flush=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.workers, mp_context=context) as pool:
        for done in as_completed([pool.submit(run, *job) for job in todo]):
            outcome = done.result()
            append(RESULTS / "curves.csv", CURVE_COLUMNS, outcome.curve)  # the line in runs.csv says both are there
            append(RESULTS / "runs.csv", COLUMNS, [outcome.row])
            row = outcome.row
            print(
                f"{row['method']:>20} seed {row['seed']:<3} return {row['return_deterministic']:6.2f}  "
                f"successes {row['successes_deterministic']:.2f}  {row['cpu_s']:5.1f} s",
                flush=True,
            )
    write_summary()


if __name__ == "__main__":
    main()

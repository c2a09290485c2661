"""PPO, SAPG and CPO on DeceptiveReach, twenty seeds each, at equal environment steps.

    OMP_NUM_THREADS=1 python benchmarks/deceptive_reach_study.py --workers 1

What a run came to is a line of `results/deceptive_reach/runs.csv` and its learning curve twenty lines of `curves.csv`.
Runs that have their line are skipped, so the same command goes on where it was stopped. At the end the summary is drawn
from those two files.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import study
from deceptive_reach_summary import write_summary

from echelon.config import TrainConfig
from echelon.evaluation.evaluate import Evaluation, PolicyScore, evaluate
from echelon.presets import preset
from echelon.presets.variants import VARIANTS
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics

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


def keep(folder: RunFolder) -> study.Kept:
    """What a run came to: lines for the two tables. A column stays empty where a method has nothing to put there."""
    metrics = read_metrics(folder)
    found: dict[str, Any] = {"env_steps": int(metrics[-1]["env_steps"]), "wall_s": metrics[-1]["wall_s"]}
    found |= _scores(evaluate(folder, num_envs=EPISODES, device="cpu")) | _course(metrics)
    return study.Kept({name: _digits(found.get(name, "")) for name in COLUMNS}, _curve(metrics))


def _digits(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


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


def _curve(metrics: list[dict[str, float]]) -> list[study.Row]:
    """The leader's training episodes at evenly spaced times, the last iteration included."""
    picked = [metrics[(i + 1) * len(metrics) // CURVE_POINTS - 1] for i in range(CURVE_POINTS)]
    return [
        {
            "env_steps": int(line["env_steps"]),
            "return": _digits(line["return/leader"]),
            "successes": _digits(line["successes/leader"]),
        }
        for line in picked
    ]


COLUMNS = (
    *("env_steps", "return_deterministic", "return_sampled"),
    *("successes_deterministic", "successes_sampled", "best_follower_successes"),
    *("first_success_steps", "leader_half_steps", "sigma_leader", "sigma_followers"),
    *DIAGNOSTICS,
    "wall_s",
)
"""Of `runs.csv`, between whose run it is and its processor time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS | CONTROLS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=20, help="seeds 0 to this, without it")
    parser.add_argument("--workers", type=int, default=1, help="processes of one thread each")
    args = parser.parse_args()

    base = replace(preset("DeceptiveReach"), device="cpu")
    methods = {name: (METHODS | CONTROLS)[name](base) for name in args.methods}
    study.run("deceptive_reach", study.grid(methods, range(args.seeds)), keep, args.workers)
    write_summary()


if __name__ == "__main__":
    main()

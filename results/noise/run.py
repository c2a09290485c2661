"""What to try next so that hands grasp early: one seed each, some at a time on one GPU, and a table of what is known.

    PYTHONPATH=benchmarks python results/noise/run.py --minutes 12 --together 3
    PYTHONPATH=benchmarks python results/noise/run.py --table

`benchmarks/ledger.py` says how it works. Exploratory: the best takes the place of `quiet` in ../evidence before its
first run.
"""

from pathlib import Path

from command import Row, command, markdown
from ledger import Arm, Plan, command_line

from echelon import RunFolder, read_metrics

LEGS = (100_000_000, 200_000_000)
PPO = ("--preset", "paper", "--algo", "ppo", "--precision", "bf16", "--update.kl-rows", "own", "--update.clip", "0.2")
GRIPPED = (*PPO, "--update.minibatches", "16", "--env.gripped-starts", "0.5")
QUIET = (*GRIPPED, "--noise.sigma", "0.4", "--noise.actions", "7:23")
LATE = (*GRIPPED, "--noise.sigma", "0.25", "--noise.actions", "0:7", "--noise.anneal", "100000000")
SETTLED = (*GRIPPED, "--noise.sigma", "0.4", "--noise.anneal", "80000000")
FARTHER = ("--update.kl-threshold", "0.05")
"""Thresholds are in units of sigma: at 0.4 the usual 0.016 moves means 0.4 times as far as at 1."""
NO_BONUS = ("--update.entropy-scale", "0")
"""Where tasks have a bonus for entropy, sigma rises."""

ARMS = {
    "farther": Arm("AllegroKukaRegrasping", (*QUIET, *FARTHER), LEGS, seconds=220),
    "settled": Arm("AllegroKukaRegrasping", (*SETTLED, *FARTHER), LEGS, seconds=220),
    "quiet_arm": Arm("AllegroKukaRegrasping", (*LATE, *FARTHER), LEGS, seconds=220),
    "reorientation": Arm("AllegroKukaReorientation", (*QUIET, *NO_BONUS), LEGS, seconds=220),
    "two_arms": Arm("AllegroKukaTwoArmsReorientation", (*QUIET, "30:46", *NO_BONUS), LEGS, seconds=400),
}


def answers(folder: RunFolder, kept: Path) -> Row:
    """Seconds of training and the leader's sigma."""
    last = read_metrics(folder.path)[-1]
    return {"wall_s": last["wall_s"], "sigma": last["sigma/policy_0"]}


PLAN = Plan(folder=Path(__file__).parent, arms=ARMS, runs=tuple((arm, 1) for arm in ARMS), answers=answers)


def table(plan: Plan) -> str:
    """Objects per episode, and steps of an episode with the object held, after each leg."""
    rows = []
    for arm in plan.arms:
        cells = []
        for leg in LEGS:
            found = [line for line in plan.lines() if (line["arm"], line["leg"]) == (arm, leg)]
            cells += [", ".join(f"{line[name]:.3g}" for line in found) for name in ("successes", "held")]
        rows.append([arm, *cells])
    return markdown(("arm", *(f"{what} at {leg / 1e6:.0f} M" for leg in LEGS for what in ("objects", "held"))), rows)


if __name__ == "__main__":
    command(lambda: command_line(PLAN, table, __doc__))

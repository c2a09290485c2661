"""The plan of README.md: every run once, some at a time on one GPU, and a table of what is known.

    PYTHONPATH=benchmarks python results/evidence/run.py --minutes 25 --together 3
    PYTHONPATH=benchmarks python results/evidence/run.py --table

`benchmarks/ledger.py` says how it works.
"""

from pathlib import Path

from command import Row, command, markdown
from ledger import Arm, Plan, command_line
from train_until import first_to_meet

from echelon import RunFolder, read_metrics

LEGS = (200_000_000, 400_000_000)
PUBLISHED = ("--preset", "paper", "--precision", "bf16")
NOISE = ("--noise.sigma", "0.4", "--noise.actions", "7:23")
QUIET = (*PUBLISHED, *NOISE, "--update.clip", "0.2", "--update.kl-rows", "own")
FLAGS = {  # CPO's minibatches are twice as large, so that all make 16 or 32 optimizer steps per iteration
    "sapg": (*PUBLISHED, "--algo", "sapg", "--update.minibatches", "8"),
    "ppo": (*PUBLISHED, "--algo", "ppo", "--update.minibatches", "8"),
    "cpo": (*PUBLISHED, "--algo", "cpo", "--update.minibatches", "8"),
    "ppo_quiet": (*QUIET, "--algo", "ppo", "--update.minibatches", "16"),
    "sapg_quiet": (*QUIET, "--algo", "sapg", "--update.minibatches", "16"),
    "cpo_quiet": (*QUIET, "--algo", "cpo", "--update.minibatches", "16"),
    "ppo_gripped": (*QUIET, "--algo", "ppo", "--update.minibatches", "16", "--env.gripped-starts", "0.5"),
}


def answers(folder: RunFolder, kept: Path) -> Row:
    """Seconds of training, the leader's sigma, and the environment steps to one success in training."""
    lines = read_metrics(folder.path)
    met = first_to_meet(lines, "successes/leader", 1)
    return {
        "wall_s": lines[-1]["wall_s"],
        "sigma": lines[-1]["sigma/policy_0"],
        "first_success": met and met["env_steps"],
    }


PLAN = Plan(
    folder=Path(__file__).parent,
    arms={name: Arm("AllegroKukaRegrasping", flags, LEGS, seconds=180) for name, flags in FLAGS.items()},
    runs=tuple((arm, seed) for arm in FLAGS for seed in (101, 102, 103)),
    answers=answers,
)


def table(plan: Plan) -> str:
    """Objects per episode after each leg, and steps to one success, by seed."""
    rows, lines = [], plan.lines()
    for arm in plan.arms:
        cells = [arm]
        for leg in LEGS:
            found = [line for line in lines if (line["arm"], line["leg"]) == (arm, leg)]
            cells.append(", ".join(f"{line['successes']:.3g}" for line in found))
            cells.append(", ".join(f"{line['sigma']:.2f}" for line in found))
        firsts = [line["first_success"] for line in lines if (line["arm"], line["leg"]) == (arm, LEGS[-1])]
        rows.append([*cells, ", ".join("-" if x is None else f"{x / 1e6:.0f}" for x in firsts)])
    headings = [text for leg in LEGS for text in (f"objects at {leg / 1e6:.0f} M", "σ")]
    return markdown(("arm", *headings, "one success in training, M steps"), rows)


if __name__ == "__main__":
    command(lambda: command_line(PLAN, table, __doc__))

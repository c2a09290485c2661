"""SAC on hands beside PPO and CPO, three seeds: steps and seconds to a return, and what is reached at the end.

    PYTHONPATH=benchmarks python results/off_policy/hands.py --minutes 25 --together 1
    PYTHONPATH=benchmarks python results/off_policy/hands.py --table

Seconds are told of runs that had the GPU for themselves (`--together 1`). `benchmarks/ledger.py` says how it works;
scores are kept as the run's own evaluations, 32 deterministic episodes each.
"""

import shutil
from pathlib import Path

import numpy as np
from command import Row, command, markdown, read_lines
from ledger import Arm, Plan, command_line

from echelon import RunFolder, read_metrics

RETURNS = {"ShadowHand": (4500, 6371), "AllegroHand": (1200, 2000), "AllegroKukaRegrasping": ()}
"""By task: those that the gate asked for, that CPO ended with, and that PPO had at 46 M steps."""
SAC = ("--algo", "sac")
REGRASPING = (*SAC, "--model.lstm", "0", "--history", "3")
"""SAC has no memory; it sees the last three observations."""
GRIPPED = (*REGRASPING, "--env.gripped-starts", "0.5")
ARMS = {  # iterations of hands are 0.2 M steps, those of Regrasping 0.4 M
    "shadow_sac": Arm("ShadowHand", SAC, (50_000_000,), seconds=260, evaluate_every=20),
    "shadow_ppo": Arm("ShadowHand", ("--variant", "ppo_x4"), (275_000_000,), seconds=240, evaluate_every=70),
    "shadow_cpo": Arm("ShadowHand", ("--algo", "cpo"), (275_000_000,), seconds=300, evaluate_every=70),
    "allegro_sac": Arm("AllegroHand", SAC, (46_000_000,), seconds=240, evaluate_every=20),
    "allegro_ppo": Arm("AllegroHand", ("--variant", "ppo_x4"), (46_000_000,), seconds=90, evaluate_every=20),
    "allegro_cpo": Arm("AllegroHand", ("--algo", "cpo"), (46_000_000,), seconds=100, evaluate_every=20),
    "shadow_ladder": Arm("ShadowHand", (*SAC, "--sac.ladder", "0.3", "3"), (50_000_000,), 260, evaluate_every=20),
    "regrasping_sac": Arm("AllegroKukaRegrasping", REGRASPING, (200_000_000,), seconds=900, evaluate_every=60),
    "regrasping_sac_gripped": Arm("AllegroKukaRegrasping", GRIPPED, (200_000_000,), seconds=900, evaluate_every=60),
}


def answers(folder: RunFolder, kept: Path) -> Row:
    """Seconds of training, and environment steps and seconds to each return in an evaluation without noise."""
    lines, scores = read_metrics(folder.path), read_lines(folder.path / "evaluations.jsonl")
    steps, seconds = ([line[name] for line in lines] for name in ("env_steps", "wall_s"))
    reached: Row = {}
    for limit in RETURNS[folder.config.task]:
        over = (one for one in scores if leader_return(one) >= limit)
        if first := next(over, None):
            met = first["env_steps"]
            reached[str(limit)] = {"env_steps": met, "wall_s": float(np.interp(met, steps, seconds))}
    shutil.copy(folder.path / "evaluations.jsonl", kept / "evaluations.jsonl")
    return {"wall_s": lines[-1]["wall_s"], "gradient_steps": lines[-1]["gradient_steps"], "reached": reached}


def leader_return(evaluation: Row) -> float:
    """The leader's return without noise."""
    who = evaluation["leader"], "deterministic"
    return next(one["return_mean"] for one in evaluation["scores"] if (one["policy"], one["mode"]) == who)


SEEDS = {"shadow_ladder": 1, "regrasping_sac": 1, "regrasping_sac_gripped": 2}
"""How many, where not three."""
PLAN = Plan(
    folder=Path(__file__).parent,
    arms=ARMS,
    runs=tuple((arm, seed) for seed in (1, 2, 3) for arm in ARMS if seed <= SEEDS.get(arm, 3)),
    answers=answers,
)


def when(line: Row, limit: int) -> str:
    """When a run reached a return; seconds only of one that had the GPU for itself."""
    if (met := line["reached"].get(str(limit))) is None:
        return "-"
    return f"{met['env_steps'] / 1e6:.1f} M" + (f", {met['wall_s']:.0f} s" if line["together"] == 1 else "")


def table(plan: Plan) -> str:
    """By arm and seed: M steps and seconds to each return, and successes at the end."""
    rows = []
    for arm, chosen in plan.arms.items():
        found = [line for line in plan.lines() if line["arm"] == arm]
        cells = [arm]
        for limit in RETURNS[chosen.task]:
            cells.append(f"{limit:,}: {'; '.join(when(line, limit) for line in found)}")
        cells += [""] * (3 - len(cells))
        rows.append([*cells, "; ".join(f"{line['successes']:.3g}" for line in found)])
    return markdown(("arm", "to a return", "to a higher one", "successes at the end"), rows)


if __name__ == "__main__":
    command(lambda: command_line(PLAN, table, __doc__))

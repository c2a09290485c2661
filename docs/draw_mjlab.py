"""Draw docs/images/mjlab.png from results/peers_mjlab: reward of a step against seconds, of trainings that had the
GPU alone (seed 0), and against steps.

python docs/draw_mjlab.py
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent
WAYS = {
    "rsl_rl": ("rsl_rl", "#666666"),
    "ppo": ("Echelon, PPO", "#0072B2"),
    "cpo": ("Echelon, CPO's leader", "#D55E00"),
}


def main() -> None:
    figure, (clock, count) = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    for way, (label, colour) in WAYS.items():
        for path in sorted((ROOT / "results" / "peers_mjlab").glob(f"{way}-*.json")):
            run = json.loads(path.read_text())
            lines, alone = run["lines"][1:], run["seed"] == 0
            seconds, steps, rewards = ([line[name] for line in lines] for name in ("seconds", "env_steps", "reward"))
            if alone:
                clock.plot(seconds, rewards, color=colour, linewidth=2, label=label)
            count.plot([n / 1e6 for n in steps], rewards, color=colour, linewidth=2 if alone else 1)
    for axis in (clock, count):
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlim(left=0)
    clock.set_xlabel("seconds of training, seed 0")
    clock.set_ylabel("reward of a step")
    count.set_xlabel("million steps, all seeds")
    clock.legend(frameon=False, loc="lower right")
    clock.set_title("mjlab's Go1 velocity task, 4,096 environments", loc="left", fontsize=11)
    figure.savefig(ROOT / "docs" / "images" / "mjlab.png", dpi=120)


if __name__ == "__main__":
    main()

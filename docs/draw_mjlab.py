"""Draw docs/images/mjlab.png from results/peers_mjlab: reward of a step against seconds of training.

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
    figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for way, (label, colour) in WAYS.items():
        for number, path in enumerate(sorted((ROOT / "results" / "peers_mjlab").glob(f"{way}-*.json"))):
            lines = json.loads(path.read_text())["lines"][1:]
            seconds, rewards = ([line[name] for line in lines] for name in ("seconds", "reward"))
            axis.plot(seconds, rewards, color=colour, linewidth=2, label=None if number else label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xlabel("seconds of training")
    axis.set_ylabel("reward of a step")
    axis.set_xlim(left=0)
    axis.legend(frameon=False, loc="lower right")
    axis.set_title("mjlab's Go1 velocity task, 4,096 environments", loc="left", fontsize=11)
    figure.savefig(ROOT / "docs" / "images" / "mjlab.png", dpi=120)


if __name__ == "__main__":
    main()

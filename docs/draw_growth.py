"""Draw docs/images/growth.png from results/growth: rates and memory against the number of environments.

python docs/draw_growth.py [FILE ...] [--out PNG]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "growth"
LINES = {
    "physics": ("physics at rest", "#999999"),
    "physics_in_training": ("physics in training", "#444444"),
    "rollout": ("rollout", "#0072B2"),
    "training": ("training", "#D55E00"),
}
"""What is drawn, its label and its colour."""
MEMORY = {"physics_gib": "physics", "gib": "training"}


def draw_rates(axis: Axes, rows: list[dict[str, Any]]) -> None:
    sizes = [row["num_envs"] for row in rows]
    for name, (label, colour) in ((name, look) for name, look in LINES.items() if name in rows[0]):
        axis.plot(sizes, [row[name] / 1e6 for row in rows], color=colour, linewidth=2, marker="o")
        axis.annotate(
            label, (sizes[-1], rows[-1][name] / 1e6), (6, 0), textcoords="offset points", color=colour, va="center"
        )
    axis.set_title(f"{rows[0]['task']}, {rows[0]['algo'].upper()}", loc="left", fontsize=11)
    axis.set_ylabel("million control steps/s")


def draw_memory(axis: Axes, rows: list[dict[str, Any]]) -> None:
    known = [row for row in rows if row["gib"] is not None]
    if not known:
        axis.text(0.5, 0.5, "no device memory on a CPU", transform=axis.transAxes, ha="center", color="#999999")
        return
    sizes = [row["num_envs"] for row in known]
    for name, line in ((name, line) for name, line in MEMORY.items() if name in known[0]):
        each = [row[name] * 2**20 / row["num_envs"] for row in known]
        axis.plot(sizes, each, color=LINES[line][1], linewidth=2, marker="o")
        axis.annotate(
            line, (sizes[-1], each[-1]), (6, 0), textcoords="offset points", color=LINES[line][1], va="center"
        )
    axis.set_ylabel("KiB per environment")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="what benchmarks/speed.py --json wrote")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "growth.png")
    args = parser.parse_args()
    files = args.files or sorted(RESULTS.glob("*.jsonl"))
    if not files:
        raise SystemExit(f"error: {RESULTS} holds no figures; benchmarks/speed.py TASK --growth --json writes them")
    figure, axes = plt.subplots(len(files), 2, figsize=(11, 3.4 * len(files)), layout="constrained", squeeze=False)
    for file, pair in zip(files, axes, strict=True):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        draw_rates(pair[0], rows)
        draw_memory(pair[1], rows)
        for axis in pair:
            axis.set_xscale("log", base=2)
            axis.set_xticks([row["num_envs"] for row in rows])
            axis.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:,.0f}"))
            axis.tick_params(axis="x", labelrotation=45)
            axis.minorticks_off()
            axis.set_ylim(bottom=0)
            axis.set_xlabel("environments")
            axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(args.out, dpi=120)


if __name__ == "__main__":
    main()

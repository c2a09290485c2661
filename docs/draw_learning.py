"""Draw docs/images/learning.png from results/learning: what each task's leader learned, against the wall clock.

python docs/draw_learning.py
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "learning"


@dataclass(frozen=True)
class Panel:
    """One task's figure that matters, and what it should reach."""

    task: str
    metric: str
    label: str
    aim: float | None


PANELS = (
    Panel("AllegroHand", "successes/leader", "successes per episode", 1.5),
    Panel("ShadowHand", "successes/leader", "successes per episode", None),
    Panel("Anymal", "env/tracking_error", "velocity error, m/s", 0.3),
    Panel("Humanoid", "env/forward_velocity", "forward velocity, m/s", 2.0),
    Panel("AllegroKukaReorientation", "env/lifted", "share of objects lifted", 0.5),
    Panel("AllegroKukaRegrasping", "env/lifted", "share of objects lifted", 0.5),
    Panel("AllegroKukaThrow", "env/lifted", "share of objects lifted", None),
    Panel("AllegroKukaTwoArmsReorientation", "env/lifted", "share of objects lifted", None),
    Panel("FrankaCubeStack", "lifted/leader", "share of episodes with a lift", None),
)
COLUMNS = 3


def read(panel: Panel) -> tuple[list[float], list[float], float]:
    """Minutes, values, and millions of environment steps in all."""
    with (RESULTS / panel.task / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    minutes = [float(row["wall_s"]) / 60 for row in rows]
    return minutes, [float(row[panel.metric]) for row in rows], float(rows[-1]["env_steps"]) / 1e6


def main() -> None:
    rows = -(-len(PANELS) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(4 * COLUMNS, 2.9 * rows), layout="constrained")
    for axis in axes.flat[len(PANELS) :]:
        axis.set_visible(False)
    for axis, panel in zip(axes.flat, PANELS, strict=False):
        minutes, values, steps = read(panel)
        axis.plot(minutes, values, color="#0072B2", linewidth=2)
        if panel.aim is not None:
            axis.axhline(panel.aim, color="#999999", linestyle=":", linewidth=1.5)
        axis.set_title(f"{panel.task}, {steps:.0f} M steps", loc="left", fontsize=11)
        axis.set_xlabel("minutes")
        axis.set_ylabel(panel.label)
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=min(0, min(values)))
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(ROOT / "docs" / "images" / "learning.png", dpi=120)


if __name__ == "__main__":
    main()

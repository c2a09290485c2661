"""Draw where a control step's physics went before and after, from physics.jsonl, into docs/images/physics.png."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
PARTS = {  # colour and what belongs to it: files of MuJoCo Warp, kernels of ours
    "Newton solver": ("#4269d0", ("solver", "echelon_newton")),
    "kinematics, inertia, forces, integration": (
        "#efb118",
        ("smooth", "passive", "forward", "support", "derivative", "echelon_forward", "echelon_integrate"),
    ),
    "constraint rows": ("#ff725c", ("constraint", "rows", "echelon_rows")),
    "collisions": ("#6cc5b0", ("collision_primitive", "collision_driver", "collision", "collision_convex")),
    "sensors, copies, waiting": ("#9498a0", ()),
}


def parts(row: dict) -> list[float]:
    """Milliseconds of each part; what no kernel accounts for is the last."""
    ours = {}
    for kernel in row["kernels"]["largest"]:
        if kernel["kernel"].startswith("echelon_"):
            ours[kernel["kernel"]] = ours.get(kernel["kernel"], 0.0) + kernel["ms"]
    files = {item["file"]: item["ms"] for item in row["kernels"]["by_file"]} | ours
    sums = [sum(files.get(name, 0.0) for name in names) for _, names in PARTS.values()]
    return [*sums[:-1], max(0.0, row["ms"] - sum(sums))]


def main() -> None:
    rows = {(row["task"], row["setting"]): row for row in map(json.loads, (HERE / "physics.jsonl").open())}
    tasks = [
        task
        for task, setting in rows
        if setting == "fused" and all("kernels" in rows[task, s] for s in ("stock", "fused"))
    ]
    plt.rcParams.update({"font.size": 11, "font.family": "DejaVu Sans"})
    figure, axes = plt.subplots(figsize=(9, 0.85 * len(tasks) + 1.2))
    for place, task in enumerate(tasks):
        for shift, setting, alpha in ((-0.2, "stock", 1.0), (0.2, "fused", 1.0)):
            row, left = rows[task, setting], 0.0
            for (_, (colour, _)), width in zip(PARTS.items(), parts(row), strict=True):
                axes.barh(place + shift, width, 0.36, left=left, color=colour, alpha=alpha)
                left += width
            label = (
                f"{row['ms']:.1f} ms" if setting == "stock" else f"{row['ms']:.1f} ms, {row['ratio']:.1f} times as fast"
            )
            axes.text(
                row["ms"] + 0.15,
                place + shift,
                f"{'before' if setting == 'stock' else 'now'}  {label}",
                va="center",
                fontsize=9.5,
            )
    axes.set_yticks(range(len(tasks)), tasks)
    axes.invert_yaxis()
    axes.set_xlim(0, 19)
    axes.set_xlabel("milliseconds of physics per control step of 24,576 environments, one H200")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour, _ in PARTS.values()]
    axes.legend(handles, PARTS, loc="lower center", bbox_to_anchor=(0.42, 1.0), ncols=3, frameon=False, fontsize=9.5)
    figure.tight_layout()
    figure.savefig(HERE.parent.parent / "docs/images/physics.png", dpi=140)


if __name__ == "__main__":
    main()

"""Draw the README's figure from the demo's run: `make demo`, then `python docs/draw_demo.py`."""

from pathlib import Path

from matplotlib import pyplot as plt

from echelon.runs.folder import RunFolder
from echelon.runs.metrics import DISTANCES, read_lines, read_metrics

HERE = Path(__file__).parent


def main() -> None:
    folder = RunFolder.open(HERE.parent / "runs" / "demo")
    lines, policies = read_metrics(folder), folder.config.num_policies
    steps = [line["env_steps"] / 1e6 for line in lines]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", width_ratios=(2, 1))
    for policy in reversed(range(policies)):
        color, name = ("#D55E00", "leader") if policy == 0 else ("#56B4E9", f"follower {policy}")
        label = name if policy in (0, 1) else None
        values = [line[f"return/policy_{policy}"] for line in lines]
        left.plot(steps, values, color=color, lw=2.5 if policy == 0 else 1, label="followers" if policy == 1 else label)
    seconds = lines[-1]["wall_s"]
    left.set(title=f"CartpoleSwingup, CPO, {policies} policies, {seconds:.0f} s on 2 CPU cores")
    left.set(xlabel="million environment steps", ylabel="return of an episode")
    left.grid(alpha=0.3)
    left.legend(frameon=False)
    matrix = read_lines(folder.path / DISTANCES)[-1]["kl"]
    image = right.imshow(matrix, cmap="viridis")
    for i, row in enumerate(matrix):
        nearest = min((value, j) for j, value in enumerate(row) if j != i)[1]
        right.plot(nearest, i, "o", ms=14, mfc="none", mec="white")
    right.set(title="KL from row to column", xlabel="policy (0 leads)", ylabel="policy")
    figure.colorbar(image, ax=right, shrink=0.8)
    figure.savefig(HERE / "images" / "demo.png", dpi=110)


if __name__ == "__main__":
    main()

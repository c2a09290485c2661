"""Write `docs/images/DeceptiveReach.png`: the arena, its dense reward, and what three hand-written policies do in it.

python docs/draw_deceptive_reach.py
"""

from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Rectangle
from torch import Tensor

from echelon.tasks.deceptive_reach.task import DeceptiveReach, DeceptiveReachConfig

IMAGE = Path(__file__).parent / "images" / "DeceptiveReach.png"
CPU = torch.device("cpu")
Policy = Callable[[Tensor], Tensor]
"""Observations `[N, 4]` to actions `[N, 2]`."""


def towards(target: Tensor, obs: Tensor) -> Tensor:
    """Accelerate towards a place `[N, 2]`, less the faster it goes already."""
    return (5 * (target - obs[:, :2]) - 1.5 * obs[:, 2:]).clamp(-1, 1)


def climber(obs: Tensor) -> Tensor:
    """Follows the dense reward."""
    return towards(torch.tensor(DeceptiveReach.goal).expand(len(obs), 2), obs)


def wanderer(generator: torch.Generator) -> Policy:
    """An untrained policy: independent noise of σ = 1."""
    return lambda obs: torch.randn(len(obs), 2, generator=generator)


def walker(obs: Tensor) -> Tensor:
    """Goes round the upper end of the wall."""
    x, y = obs[:, 0], obs[:, 1]
    before = (x < 0.05) | ((y < 0.6) & (x < 0.3))
    beside = ~before & (x < 0.35)
    goal = torch.tensor(DeceptiveReach.goal).expand(len(obs), 2)
    target = torch.where(before[:, None], torch.tensor((0.1, 0.75)), goal)
    return towards(torch.where(beside[:, None], torch.tensor((0.45, 0.7)), target), obs)


def paths(policy: Policy, num_envs: int, seed: int) -> list[tuple[Tensor, float]]:
    """Positions `[T, 2]` and return of each environment's first episode."""
    env = DeceptiveReach(DeceptiveReachConfig(), num_envs, CPU, seed)
    obs = env.reset()["policy"]
    places, rewards, done = [obs[:, :2]], [], []
    for _ in range(env.episode_length):
        step = env.step(policy(obs))
        obs = step.obs["policy"]
        places.append(step.final_obs["policy"][:, :2])
        rewards.append(step.reward)
        done.append(step.terminated | step.truncated)
    track, reward = torch.stack(places, dim=1), torch.stack(rewards, dim=1)
    lengths = torch.stack(done, dim=1).int().argmax(dim=1) + 1
    return [(track[i, : n + 1], reward[i, :n].sum().item()) for i, n in enumerate(lengths.tolist())]


def draw_arena(axes: Axes, env: DeceptiveReach) -> None:
    """Dense reward as colour, and what stands in the arena."""
    x, y = torch.meshgrid(torch.linspace(-1, 1, 301), torch.linspace(-1, 1, 301), indexing="xy")
    field = env.dense(torch.hypot(x - env.goal[0], y - env.goal[1]))
    image = axes.imshow(field, extent=(-1, 1, -1, 1), origin="lower", cmap="YlGnBu", vmin=0.0, vmax=0.12)
    plt.colorbar(image, ax=axes, shrink=0.8, label="dense reward per step")
    wall, trap, spread = env.wall, env.trap, env.config.start_spread
    size = (wall.right - wall.left, wall.top - wall.bottom)
    axes.add_patch(Rectangle((wall.left, wall.bottom), *size, color="#333333"))
    size = (trap.right - trap.left, trap.top - trap.bottom)
    axes.add_patch(Rectangle((trap.left, trap.bottom), *size, fill=False, linestyle="--", edgecolor="#b5651d"))
    axes.add_patch(Circle(env.goal, env.goal_radius, color="#f2b632", zorder=3))
    corner = (env.start[0] - spread, env.start[1] - spread)
    axes.add_patch(Rectangle(corner, 2 * spread, 2 * spread, fill=False, edgecolor="black"))
    axes.text(*env.goal, f"goal\n+{env.config.goal_bonus:.0f}", ha="center", va="center", fontsize=9, zorder=4)
    axes.text(trap.left + 0.02, trap.bottom + 0.03, "trap", color="#b5651d", fontsize=9)
    axes.text(wall.right + 0.03, wall.bottom + 0.02, "wall", fontsize=9)
    axes.text(corner[0], corner[1] - 0.09, "start", fontsize=9)
    axes.set(xlim=(-1, 1), ylim=(-1, 1), xlabel="x", ylabel="y", aspect="equal")


def main() -> None:
    figure, axes = plt.subplots(figsize=(7, 5.4), layout="constrained")
    draw_arena(axes, DeceptiveReach(DeceptiveReachConfig(), 1, CPU, seed=0))
    shown = (
        ("untrained, σ = 1", wanderer(torch.Generator().manual_seed(2)), "#777777", 6),
        ("climbs the dense reward", climber, "#c0392b", 3),
        ("goes round the wall", walker, "#1e7d32", 3),
    )
    for label, policy, colour, number in shown:
        tracks = paths(policy, number, seed=4)
        mean = sum(total for _, total in tracks) / number
        for i, (track, _) in enumerate(tracks):
            name = f"{label}: return {mean:.1f}" if i == 0 else None
            axes.plot(track[:, 0], track[:, 1], color=colour, linewidth=1.3, label=name, zorder=5)
    axes.legend(loc="lower left", fontsize=8)
    IMAGE.parent.mkdir(exist_ok=True)
    figure.savefig(IMAGE, dpi=110)


if __name__ == "__main__":
    main()

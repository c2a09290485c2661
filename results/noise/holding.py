"""How much noise does a grasp survive? Hands that hold an object act for two seconds as a policy with noise would.

    PYTHONPATH=benchmarks python results/noise/holding.py --json results/noise/holding.jsonl

AllegroKukaRegrasping begins as with `--env.gripped-starts`: a script has found a grasp for each environment. Then the
arm's actions are 0, and the fingers' are those of the closed hand, or as large as they can be in all joints that bend, or
three times as large, so that noise is mostly clamped. White noise of deviation sigma is added to the fingers' actions, to
the arm's, or to both, as in training. A grasp survives if the object is held throughout.
"""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import cast

import torch
from command import Row, append, command, options
from torch import Tensor

from echelon.tasks import maker, preset
from echelon.tasks.allegro_kuka.task import AllegroKuka

SIGMAS = (0.0, 0.1, 0.25, 0.4, 0.5, 0.7, 1.0)
SECONDS, RATE = 2.0, 60
ACTIONS = {"fingers": slice(7, 23), "arm": slice(0, 7), "both": slice(0, 23)}
"""Where noise is added."""
BENDS = torch.tensor([False, True, True, True] * 3 + [True] * 4)
"""Joints of the hand that close it; the first of each finger spreads."""


def survivors(env: AllegroKuka, mean: Tensor, sigma: float, where: slice) -> Tensor:
    """`[N]`: whether each object is held throughout."""
    generator, held = torch.Generator().manual_seed(0), env.held()
    for _ in range(round(SECONDS * RATE)):
        action, noise = mean.clone(), sigma * torch.randn(mean.shape, generator=generator)
        action[:, where] += noise[:, where]
        step = env.step(action)
        held &= ~(step.terminated | step.truncated) & (step.log["held"] > 0)
    return held


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    config = preset("AllegroKukaRegrasping")
    config = replace(config, env=replace(config.env, gripped_starts=1.0))
    made = maker(config, spread_clocks=True)(given.num_envs, torch.device("cpu"), given.seed)
    env = cast(AllegroKuka, made)
    env.reset()
    env.clock.zero_()  # training spreads it, and time would be up in some
    begin, low, high = env.state_dict(), env.arms.low, env.arms.high
    gripped = env.kept["gripped"] & env.held()
    closed = (2 * env.arms.target - low - high) / (high - low)
    closed[:, ACTIONS["arm"]] = 0.0
    means = {"closed": closed}
    for name, size in (("at the end of their range", 1.0), ("beyond it", 3.0)):
        means[name] = closed.clone()
        means[name][:, ACTIONS["fingers"]] = torch.where(BENDS, size, closed[:, ACTIONS["fingers"]])
    rows: list[Row] = []
    for (fingers, mean), (noisy, where), sigma in product(means.items(), ACTIONS.items(), SIGMAS):
        env.load_state_dict(begin)
        survive = int((survivors(env, mean, sigma, where) & gripped).sum())
        row = {"fingers": fingers, "noise_on": noisy, "sigma": sigma, "seed": given.seed}
        rows.append(row | {"grasps": int(gripped.sum()), "survive": survive})
        print(rows[-1], flush=True)
    append(given.json, rows)


if __name__ == "__main__":
    command(main)

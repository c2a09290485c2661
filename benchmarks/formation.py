"""Does a flock keep its distance, and does a formation that changes find the goal sooner? Small tasks on a CPU.

    OMP_NUM_THREADS=1 python benchmarks/formation.py --arms free third half --seeds 500 520
    OMP_NUM_THREADS=1 python benchmarks/formation.py --arms ess_0.9 tight_0.9 lambda_f_0.2 --seeds 400 420
    OMP_NUM_THREADS=1 python benchmarks/formation.py --arms within_0.9 --seeds 600 620

Prints a line of JSON per run. `solved_at`: environment steps after which the leader, with its noise, had succeeded in
more than half of its last episodes. `held`: share of measurements with |ln(d/d*)| < 0.2; a measurement is one follower
in one iteration, after the first ten. `held_error`: share of iterations whose `distance/error` is below 0.2.
Seeds of an arm are trained side by side, but for arms whose formation changes.
"""

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from command import command, options
from torch import Tensor

from echelon import train, train_seeds
from echelon.algorithms import flock, register
from echelon.algorithms.algorithm import Parts, Takeover
from echelon.algorithms.flock import FLOCK
from echelon.algorithms.formation import asked_distances
from echelon.config import TrainConfig
from echelon.errors import UserError, nearest
from echelon.evaluation.evaluate import evaluate
from echelon.learning.settings import entropy_ladder
from echelon.models.flat import aligned_slices
from echelon.presets import preset
from echelon.presets.variants import apply_variants
from echelon.rollout.layout import Layout
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics

WARM_UP = 10
"""Iterations before distances count: about what the KL rule takes to find its rate."""
FIRST, EVERY = 12, 6
"""When a formation changes, in iterations: an episode of DeceptiveReach takes four."""


def even(config: TrainConfig, layout: Layout) -> dict[str, Tensor]:
    """The entropy ladder's mean for every follower, and the leader's own for it."""
    ladder = entropy_ladder(config.update, layout)["entropy_coef"]
    ladder[1:] = ladder[1:].mean()
    return {"entropy_coef": ladder}


class Changing:
    """Between iterations the follower with the lowest return gives up its place; the leader is never touched."""

    leader = 0

    def __init__(self, parts: Parts, change: Callable[["Changing", int, int], None]) -> None:
        self.parts, self.change, self.draw = parts, change, random.Random(parts.config.seed)
        model, optimizer = parts.update.model, parts.update.optimizer
        places, _ = aligned_slices(p[0].numel() for p in model.parameters())
        self.tables: list[Tensor] = []
        """What each follower has for itself, a row a policy: φ, log sigma, and Adam's moments of both."""
        for p, place in zip(model.parameters(), places, strict=True):
            if p is model.phi or p is model.log_sigma:
                self.tables += [x[:, place].unflatten(1, p.shape[1:])[0] for x in (optimizer.mean, optimizer.square)]
                self.tables.append(p.data[0])

    def metrics(self) -> dict[str, Tensor]:
        return self.parts.collector.episodes.metrics()

    def after(self, iteration: int, metrics: Mapping[str, float]) -> Sequence[Takeover]:
        returns = {i: metrics[f"return/policy_{i}"] for i in range(1, self.parts.layout.policies)}
        if iteration >= FIRST and iteration % EVERY == 0 and not any(map(math.isnan, returns.values())):
            worst, best = min(returns, key=returns.__getitem__), max(returns, key=returns.__getitem__)
            self.change(self, worst, best)
            self.parts.collector.inherit(best, worst)
        return ()

    def score(self, metrics: Mapping[str, float]) -> float:
        return metrics["return/leader"]

    def start(self) -> list[dict[str, float]]:
        return [{} for _ in range(self.parts.layout.policies)]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        pass


def take_over(formation: Changing, worst: int, best: int) -> None:
    """As PBT: the worst goes on as the best, with its settings a little larger or smaller."""
    for table in formation.tables:
        table[worst] = table[best]
    for setting in formation.parts.settings.vectors.values():
        setting[worst] = setting[best] * formation.draw.choice((0.8, 1.25))


def rebirth(formation: Changing, worst: int, best: int) -> None:
    """The worst is born again from two others, each number of φ and log sigma from one of them; its settings stay."""
    others = [i for i in range(1, formation.parts.layout.policies) if i != worst]
    mother, father = formation.draw.sample(others, 2)
    for k in range(0, len(formation.tables), 3):  # both moments and the numbers, from the same parent
        numbers = formation.tables[k]
        chosen = torch.tensor([formation.draw.random() < 0.5 for _ in range(numbers[0].numel())]).view_as(numbers[0])
        for table in formation.tables[k : k + 3]:
            table[worst] = torch.where(chosen, table[mother], table[father])


def changing(name: str, change: Callable[[Changing, int, int], None]) -> None:
    register(replace(FLOCK, name=name, selection=lambda parts: Changing(parts, change)))


register(replace(FLOCK, name="flock_even", vectors=even))
changing("flock_selected", take_over)
changing("flock_reborn", rebirth)
ALONE = ("flock_selected", "flock_reborn")


def sizes(config: TrainConfig, share: float) -> tuple[int, ...]:
    """The leader's environments, about so large a part of all, and the followers'."""
    followers = config.num_policies - 1
    each = round(config.num_envs * (1 - share) / followers) // 2 * 2
    return config.num_envs - followers * each, *[each] * followers


def arm(config: TrainConfig, name: str) -> TrainConfig:
    """A task's settings by an arm's name."""
    kind, _, number = name.partition("_")
    if name.startswith("lambda_f_"):
        return apply_variants(config, [name])
    config = replace(apply_variants(config, ["flock"]), variant=(), policies=6)
    if kind == "tight":
        flock.TOLERANCE = 0.0
        config = replace(config, formation=replace(config.formation, strength=1.0))
    if kind in ("ess", "tight", "within"):
        try:
            distance = tuple(map(float, number.split("_")))
        except ValueError:
            raise UserError(f"{name} is not an arm; after {kind}_ comes an ESS, as in {kind}_0.9") from None
        return replace(config, formation=replace(config.formation, distance=distance, push=kind != "within"))
    if name in ("even", "selected", "reborn"):
        return replace(config, algo=f"flock_{name}")
    shares = {"free": 1 / 6, "third": 1 / 3, "half": 1 / 2}
    if name not in shares:
        raise UserError(f"{name} is not an arm{nearest(name, [*shares, 'even', 'selected', 'reborn'])}")
    return config if name == "free" else replace(config, envs_per_policy=sizes(config, shares[name]))


def row(folder: RunFolder) -> dict[str, Any]:
    """What a run is scored by."""
    config, lines = folder.config, read_metrics(folder)
    last, found = lines[-1], {}
    asked = config.formation.distance and asked_distances(config.formation, config.num_policies - 1, config.update.clip)
    if asked:
        late = lines[WARM_UP:]
        errors = [math.log(x[f"distance/policy_{k}"] / d) for x in late for k, d in enumerate(asked, start=1)]
        found["held"] = _share(abs(x) < 0.2 for x in errors)
        found["far"] = _share(x >= 0.2 for x in errors)
        found["held_error"] = _share(x["distance/error"] < 0.2 for x in late)
    if "successes/leader" in last:
        found["solved_at"] = next((x["env_steps"] for x in lines if x["successes/leader"] > 0.5), None)
        scores = evaluate(folder, num_envs=64, seed=10_000 + config.seed, device="cpu").scores
        found |= {f"successes_{s.mode}": s.extra["successes"] for s in scores if s.policy == 0}
    found["return"] = fmean(x["return/leader"] for x in lines[-5:])
    found["ess"] = fmean(x["ess"] for x in lines if "ess" in x)
    found["kl_own"] = fmean(x["kl/own"] for x in lines[len(lines) // 2 :])
    return found | {"env_steps": last["env_steps"], "gradient_steps": last["gradient_steps"]}


def _share(hits: Iterable[bool]) -> float:
    return fmean(map(float, hits))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--task", default="DeceptiveReach")
    parser.add_argument("--arms", nargs="+", default=["free", "third", "half"])
    parser.add_argument("--seeds", nargs=2, type=int, default=(500, 520), metavar=("FIRST", "END"))
    parser.add_argument("--env-steps", type=int)
    parser.add_argument("--wall", type=float, help="length of DeceptiveReach's wall")
    parser.add_argument("--out", type=Path, default=Path("runs/formation"))
    args = parser.parse_args()
    usual = replace(preset(args.task), device="cpu", checkpoint_every=1_000_000)
    if args.env_steps:
        usual = replace(usual, env_steps=args.env_steps)
    if args.wall:
        usual = replace(usual, env=replace(usual.env, wall_length=args.wall))
    for name in args.arms:
        config = arm(usual, name)
        if args.task == "DeceptiveReach":  # 2,112 optimizer steps, as in benchmarks/borrowing.py
            config = replace(config, update=replace(config.update, minibatches=8))
        place, seeds = args.out / args.task / name, range(*args.seeds)
        if config.algo in ALONE:
            folders = [train(replace(config, seed=seed, out=str(place / f"seed_{seed}"))) for seed in seeds]
        else:
            folders = train_seeds(replace(config, out=str(place)), seeds)
        for seed, folder in zip(seeds, folders, strict=True):
            said = {"task": args.task, "arm": name, "seed": seed, "wall": args.wall}
            print(json.dumps(said | row(folder)), flush=True)


if __name__ == "__main__":
    command(main)

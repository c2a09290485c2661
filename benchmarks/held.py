"""How well does a flock keep the distance it is asked for? Four ways to count, and what stands in the way.

    OMP_NUM_THREADS=1 python benchmarks/held.py DeceptiveReach --ess 0.9 --seed 310
    OMP_NUM_THREADS=1 python benchmarks/held.py Hopper --ess 0.9 --strength 1 --tolerance 0 --env-steps 400000

Prints a line of JSON: the share of measurements after the first ten iterations with |ln(d/d*)| < 0.2, where d is

    held_acting     a follower's distance on all states of its rollout, at the parameters that acted
    held_iteration  a follower's distance, averaged over an iteration's optimizer steps: `distance/policy_i`
    held_step       a follower's distance on a minibatch, in every optimizer step
    held_error      (instead of |ln(d/d*)|) `distance/error`, the mean of its size over followers and optimizer steps

and `noise`, the deviation of d between minibatches of one rollout under the same policies, as a share of it, and
`moved`, the deviation of what ln d of acting policies changes by in an iteration.
"""

import json
import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, pstdev

import torch
from command import command, options
from torch import Tensor

from echelon import train
from echelon.algorithms import flock
from echelon.algorithms.formation import asked_distances
from echelon.device.randomness import Source
from echelon.learning.batch import Batch
from echelon.learning.targets import Targets
from echelon.learning.update import Update
from echelon.presets import preset
from echelon.presets.variants import apply_variants
from echelon.rollout.buffer import Rollout
from echelon.runs.metrics import read_metrics

WARM_UP = 10
"""Iterations that do not count: about what the KL rule takes to find its rate."""


class Watched:
    """Distances `[followers]` of every iteration: of the acting policies on each minibatch, then in each step."""

    def __init__(self, lead: float) -> None:
        self.lead = lead
        self.acting: list[list[list[float]]] = []
        self.steps: list[list[list[float]]] = []
        self._run, self._distances, self._asked_of = Update.run, flock.distances, flock.asked_of
        self._errors: list[Tensor] = []

    def distances(self, batch: Batch) -> tuple[Tensor, Tensor]:
        found, inside = self._distances(batch)
        self.steps[-1].append(found.detach()[0].tolist())
        self._errors = [*self._errors[-1:], (found.detach() / self._asked_of(batch)).log()]
        return found, inside

    def asked_of(self, batch: Batch) -> Tensor:
        """As if followers were already where they will be in `lead` steps if they go on like that."""
        before, now = self._errors[0], self._errors[-1]
        return self._asked_of(batch) * (self.lead * (before - now)).exp()

    def run(
        self, update: Update, rollout: Rollout, targets: Targets, drawn: Tensor, generator: Source
    ) -> dict[str, Tensor]:
        with torch.no_grad():
            data = update.data(rollout, targets, drawn)
            minibatches = update.plan.shuffle(drawn, torch.Generator().manual_seed(1))
            batches = (data.evaluate(update.gather(data, minibatch), False) for minibatch in minibatches)
            self.acting.append([self._distances(batch)[0][0].tolist() for batch in batches])
        self.steps.append([])
        return self._run(update, rollout, targets, drawn, generator)

    def figures(self, asked: Sequence[float]) -> dict[str, float]:
        acting, means, steps, noise, moved = ([] for _ in range(5))
        for k, wanted in enumerate(asked):
            found = [[minibatch[k] for minibatch in iteration] for iteration in self.acting[WARM_UP:]]
            noise += [pstdev(x) / fmean(x) for x in found]
            series = [math.log(fmean(x) / wanted) for x in found]
            moved += [after - before for before, after in pairwise(series)]
            acting += series
            in_steps = [[step[k] for step in iteration] for iteration in self.steps[WARM_UP:]]
            means += [math.log(fmean(x) / wanted) for x in in_steps]
            steps += [math.log(d / wanted) for x in in_steps for d in x]
        errors = [
            fmean(abs(math.log(d / wanted)) for step in iteration for d, wanted in zip(step, asked, strict=True))
            for iteration in self.steps[WARM_UP:]
        ]
        held = {"acting": acting, "iteration": means, "step": steps, "error": errors}
        return {f"held_{name}": share(abs(x) < 0.2 for x in values) for name, values in held.items()} | {
            "far_acting": share(x >= 0.2 for x in acting),
            "noise": fmean(noise),
            "moved": pstdev(moved),
        }


def share(hits: Iterable[bool]) -> float:
    return fmean(map(float, hits))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("task")
    parser.add_argument("--ess", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=310)
    parser.add_argument("--strength", type=float, default=0.2)
    parser.add_argument("--tolerance", type=float, default=flock.TOLERANCE)
    parser.add_argument("--kl-threshold", type=float, default=0.016)
    parser.add_argument("--lead", type=float, default=0.0, help="steps ahead at which the term takes followers to be")
    parser.add_argument("--env-steps", type=int)
    args = parser.parse_args()
    usual = apply_variants(preset(args.task), ["flock"])
    usual = replace(usual, policies=6, device="cpu", seed=args.seed, env_steps=args.env_steps or usual.env_steps)
    if args.task == "DeceptiveReach":  # 2,112 optimizer steps, as in benchmarks/borrowing.py
        usual = replace(usual, update=replace(usual.update, minibatches=8))
    formation = replace(usual.formation, distance=(args.ess,), strength=args.strength)
    update = replace(usual.update, kl_threshold=args.kl_threshold)
    flock.TOLERANCE = args.tolerance
    watched = Watched(args.lead)
    flock.distances, flock.asked_of = watched.distances, watched.asked_of

    def run(self: Update, rollout: Rollout, targets: Targets, drawn: Tensor, generator: Source) -> dict[str, Tensor]:
        return watched.run(self, rollout, targets, drawn, generator)

    Update.run = run
    with tempfile.TemporaryDirectory() as place:
        lines = read_metrics(train(replace(usual, formation=formation, update=update, out=f"{place}/run")))
    found: dict[str, float | None] = {**watched.figures(asked_distances(formation, 5, update.clip))}
    late = lines[WARM_UP:]
    found |= {"rate": fmean(x["lr"] for x in late), "kl_own": fmean(x["kl/own"] for x in late)}
    found |= {"return": lines[-1]["return/leader"], "env_steps": lines[-1]["env_steps"]}
    if "successes/leader" in lines[-1]:
        found["solved_at"] = next((x["env_steps"] for x in lines if x["successes/leader"] > 0.5), None)
    print(json.dumps({name: value for name, value in vars(args).items() if name != "env_steps"} | found))


if __name__ == "__main__":
    command(main)

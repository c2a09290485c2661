"""What a common offset of a policy's own advantages does to its spread, on DeceptiveReach.

    OMP_NUM_THREADS=1 python benchmarks/deceptive_reach_shift.py

Normalising over all rows together leaves own rows with a mean above zero (see `results/deceptive_reach`). Here SAPG's
own advantages are given mean and deviation by hand. Prints the followers' mean σ in the course of 350,000 steps.
"""

from dataclasses import replace

import torch
from torch import Tensor

from echelon import tasks
from echelon.learning import update
from echelon.learning.plans import Plan
from echelon.learning.targets import normalise_advantages
from echelon.presets import preset
from echelon.presets.variants import VARIANTS
from echelon.training.trainer import Trainer


def spread(mean: float, deviation: float, seed: int) -> list[float]:
    """σ of the followers after every sixth iteration."""

    def normalise(plan: Plan, advantage: Tensor, scope: str) -> Tensor:
        result = normalise_advantages(plan, advantage, scope)
        own, rest = result[:, : plan.own], result[:, plan.own :]
        return torch.cat(((own - own.mean()) / own.std() * deviation + mean, rest), dim=1)

    update.normalise_advantages = normalise
    config = VARIANTS["sapg_cpo_steps"](replace(preset("DeceptiveReach"), seed=seed, env_steps=350_000))
    env = tasks.make(config.task, config.env, config.num_envs, torch.device("cpu"), seed, spread_clocks=True)
    trainer = Trainer(env, config)
    sigmas = []
    for i in range(config.num_iterations):
        metrics = trainer.iterate().metrics
        if i % 6 == 5:
            sigmas.append(sum(metrics[f"sigma/policy_{k}"] for k in range(1, config.num_policies)) / 5)
    return sigmas


if __name__ == "__main__":
    torch.set_num_threads(1)
    for mean, deviation in ((0.0, 1.0), (0.5, 1.0), (0.0, 1.4)):
        for seed in (100, 101):
            sigmas = " ".join(f"{sigma:.2f}" for sigma in spread(mean, deviation, seed))
            print(f"mean {mean} deviation {deviation} seed {seed}: σ {sigmas}", flush=True)

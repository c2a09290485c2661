"""Mirrored rows beside the real ones, or the real ones alone: PPO on CartpoleSwingup, 256 environments, 0.7 M steps.

    python results/symmetry/run.py ARM SEED >> results/symmetry/runs.jsonl     # plain, copied or evaluated

A wrapper shows each environment twice, the second time mirrored; the mirrored half takes the mirrored action of the
first. `copied`: its old log-probability and value are those of the real row. `evaluated`: those of the policy that
acted, in the mirrored state.
"""

import json
import sys
import time
from dataclasses import replace
from typing import Any

import torch

from echelon.algorithms import with_algorithm
from echelon.envs.contract import Groups, Step
from echelon.models import gaussian
from echelon.rollout.acting import Decision
from echelon.tasks import make, preset
from echelon.training.resolve import resolve
from echelon.training.trainer import Trainer

ENVS, ITERATIONS, CPU = 256, 170, torch.device("cpu")
SIGN = torch.tensor([-1.0, -1.0, 1.0, -1.0, -1.0])
"""Of position, sine, cosine, velocity, angular velocity."""


class Mirrored:
    """Every environment twice, the second time as in a mirror."""

    def __init__(self, env: Any) -> None:
        self.env, self.num_envs = env, 2 * env.num_envs
        self.action_dim, self.obs_spec = env.action_dim, env.obs_spec
        self.episode_length, self.device = env.episode_length, env.device

    def reset(self) -> Groups:
        return both(self.env.reset())

    def step(self, action: torch.Tensor) -> Step:
        step = self.env.step(action[:ENVS])
        reward, ended, cut = (torch.cat((x, x)) for x in (step.reward, step.terminated, step.truncated))
        return Step(both(step.obs), reward, ended, cut, both(step.final_obs), {})


def both(obs: Groups) -> Groups:
    return {"policy": torch.cat((obs["policy"], obs["policy"] * SIGN))}


def main() -> None:
    arm, seed = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    config = with_algorithm(preset("CartpoleSwingup"), "ppo")
    update = replace(config.update, minibatches=4)
    config = replace(config, algo="ppo", seed=seed, policies=None, device="cpu", update=update, variant=())
    env: Any = make("CartpoleSwingup", config.env, ENVS, CPU, seed, spread_clocks=True)
    if arm != "plain":
        env, config = Mirrored(env), replace(config, num_envs=2 * ENVS)
    resolved = resolve(config)
    trainer = Trainer(env, resolved.config, resolved.plan)
    decide = trainer.collector.decide

    def mirrored(obs: Groups, state: torch.Tensor, noise: torch.Tensor | None) -> Decision:
        found = decide(obs, state, noise)
        action = torch.cat((found.action[:ENVS], -found.action[:ENVS]))
        if arm == "copied":
            log_prob, value = (torch.cat((x[:ENVS], x[:ENVS])) for x in (found.log_prob, found.value))
        else:
            log_prob, value = gaussian.log_prob(action, found.mean, trainer.model.log_std[:1]), found.value
        return Decision(action, found.mean, log_prob, value, found.state)

    if arm != "plain":
        trainer.collector.decide = mirrored
    began = time.process_time()
    returns = [round(trainer.iterate().metrics["return/leader"], 2) for _ in range(ITERATIONS)]
    print(json.dumps({"arm": arm, "seed": seed, "cpu_s": round(time.process_time() - began, 1), "returns": returns}))


if __name__ == "__main__":
    main()

"""PPO on Gymnasium's MuJoCo tasks, here, in Stable-Baselines3 and by CleanRL's recipe: equal steps, environments,
networks and batches.

    pip install -e '.[gymnasium]' stable-baselines3
    python results/peers_gymnasium/run.py --seeds 3 --steps 500000 --out results/peers_gymnasium/runs.csv

All act in 16 environments for 128 steps, learn for 10 passes from 32 minibatches of 64 rows with two hidden layers of
64, and normalise observations and rewards. All else is each one's own: actor and critic share the layers here and not
there; ours moves its rate by the KL it measures, Stable-Baselines3's is 3e-4 throughout, the recipe's falls from there
to 0. Scored over 20 episodes after training, at the mean of the policy. A line is added as each run ends, and those
that are there are not run again.
"""

import argparse
import csv
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ENVS, HORIZON, PASSES, MINIBATCHES, HIDDEN, EPISODES = 16, 128, 10, 32, (64, 64), 20


def ours(task: str, seed: int, steps: int) -> dict[str, Any]:
    from dataclasses import replace

    from echelon import evaluate, preset, train
    from echelon.config import ModelConfig

    start = preset(f"gymnasium:{task}")
    update = replace(start.update, horizon=HORIZON, mini_epochs=PASSES, minibatches=MINIBATCHES)
    with TemporaryDirectory() as folder:
        config = replace(
            start,
            num_envs=ENVS,
            env_steps=steps,
            seed=seed,
            device="cpu",
            out=folder + "/run",
            model=ModelConfig(hidden=HIDDEN),
            update=update,
        )
        began = time.process_time()
        run = train(config)
        seconds = time.process_time() - began
        score = evaluate(run, EPISODES, device="cpu").scores[0]
    return {"return": score.return_mean, "std": score.return_std, "cpu_s": seconds}


def stable_baselines(task: str, seed: int, steps: int) -> dict[str, Any]:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    env = VecNormalize(make_vec_env(task, ENVS, seed=seed))
    rows = ENVS * HORIZON
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=HORIZON,
        n_epochs=PASSES,
        batch_size=rows // MINIBATCHES,
        seed=seed,
        device="cpu",
        policy_kwargs={"net_arch": list(HIDDEN)},
    )
    began = time.process_time()
    model.learn(steps)
    seconds = time.process_time() - began
    env.training, env.norm_reward = False, False
    mean, std = evaluate_policy(model, env, EPISODES)
    return {"return": float(mean), "std": float(std), "cpu_s": seconds}


def cleanrl_recipe(task: str, seed: int, steps: int) -> dict[str, Any]:
    import numpy as np
    import torch
    from single_file_ppo import returns, train

    torch.set_num_threads(1)
    agent, statistics, seconds = train(task, seed, steps, ENVS, HORIZON, PASSES, MINIBATCHES, HIDDEN)
    found = returns(task, agent, statistics, EPISODES, seed + 1000)
    return {"return": float(np.mean(found)), "std": float(np.std(found)), "cpu_s": seconds}


WAYS = {"echelon": ours, "stable_baselines3": stable_baselines, "cleanrl_recipe": cleanrl_recipe}
COLUMNS = ("library", "task", "seed", "steps", "return", "std", "cpu_s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["Walker2d-v5", "HalfCheetah-v5"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    if not given.out.exists():
        given.out.write_text(",".join(COLUMNS) + "\n")
    with given.out.open() as lines:
        done = {(row["library"], row["task"], int(row["seed"]), int(row["steps"])) for row in csv.DictReader(lines)}
    for seed in range(given.seeds):
        for task in given.tasks:
            for name, run in WAYS.items():
                if (name, task, seed, given.steps) in done:
                    continue
                row = {"library": name, "task": task, "seed": seed, "steps": given.steps} | run(task, seed, given.steps)
                print(row, flush=True)
                with given.out.open("a") as lines:
                    csv.DictWriter(lines, COLUMNS, lineterminator="\n").writerow(row)


if __name__ == "__main__":
    main()

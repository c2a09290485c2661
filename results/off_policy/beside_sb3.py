"""Echelon's SAC beside Stable-Baselines3's in two environments of Gymnasium: equal steps, equal seeds, one thread each.

    PYTHONPATH=src python results/off_policy/beside_sb3.py HalfCheetah-v5 Walker2d-v5 --seeds 3 --steps 1e6 --out /tmp/gym

Each run is a process of its own, `--jobs` at once; those in scores.jsonl are not repeated. A JSON line per run: mean return of 20
episodes at the mean action, and seconds.
Stable-Baselines3 has its own defaults (10,000 steps of warm-up, as its authors use for MuJoCo); Echelon has those of one environment.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

EPISODES, EVALUATION_SEED = 20, 1000


def ours(task: str, seed: int, steps: int, out: Path) -> dict[str, float]:
    from dataclasses import replace

    from echelon.algorithms import with_algorithm
    from echelon.console.view import NullView
    from echelon.evaluation.evaluate import evaluate
    from echelon.tasks import preset
    from echelon.training.loop import train

    start = preset(f"gymnasium:{task}")
    update = replace(start.update, horizon=1000)
    config = replace(start, num_envs=1, env_steps=steps, seed=seed, device="cpu", out=str(out), update=update)
    folder = train(with_algorithm(config, "sac"), NullView())
    score = evaluate(folder, EPISODES, EVALUATION_SEED, "cpu").scores[0]
    return {"return": score.return_mean, "return_std": score.return_std}


def theirs(task: str, seed: int, steps: int, out: Path) -> dict[str, float]:
    import gymnasium
    from stable_baselines3 import SAC
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    model = SAC("MlpPolicy", gymnasium.make(task), learning_starts=min(10_000, steps // 10), seed=seed, device="cpu")
    model.learn(steps)
    env = Monitor(gymnasium.make(task))
    env.reset(seed=EVALUATION_SEED)
    mean, std = evaluate_policy(model, env, EPISODES)
    return {"return": float(mean), "return_std": float(std)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=float, default=1e6)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--one", nargs=2, metavar=("LIBRARY", "SEED"), help="train this one here")
    o = parser.parse_args()
    o.out.mkdir(parents=True, exist_ok=True)
    if o.one:
        (task,), (library, seed) = o.tasks, o.one
        began = time.perf_counter()
        run = {"echelon": ours, "stable-baselines3": theirs}[library]
        found = run(task, int(seed), int(o.steps), o.out / f"{task}-{library}-{seed}")
        facts = {"task": task, "library": library, "seed": int(seed), "steps": int(o.steps)}
        print(json.dumps(facts | found | {"seconds": round(time.perf_counter() - began, 1)}), flush=True)
        return

    def start(task: str, seed: int, library: str) -> str:
        words = [sys.executable, __file__, task, "--steps", str(o.steps), "--out", str(o.out)]
        one, alone = ["--one", library, str(seed)], os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run([*words, *one], env=alone, capture_output=True, text=True, check=False)
        return (
            done.stdout.splitlines()[-1] if done.returncode == 0 else f"{task} {library} {seed}: {done.stderr[-800:]}"
        )

    path = o.out / "scores.jsonl"
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    kept = {(one["task"], one["seed"], one["library"]) for one in known if one["steps"] == int(o.steps)}
    every = itertools.product(o.tasks, range(o.seeds), ("echelon", "stable-baselines3"))
    with ThreadPoolExecutor(o.jobs) as pool, path.open("a") as file:
        for line in pool.map(lambda job: start(*job), (job for job in every if job not in kept)):
            print(line, flush=True)
            if line.startswith("{"):
                file.write(line + "\n")
                file.flush()


if __name__ == "__main__":
    main()

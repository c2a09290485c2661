"""Train a task with rsl_rl's PPO, to see that the task can be learned by somebody else's algorithm.

    python benchmarks/rsl_rl_train.py CartpoleSwingup --seconds 100

Prints figures of the episodes that ended since the line before, and at the end those of the deterministic policy over
one full episode in each environment.
"""

import argparse
import contextlib
import io
import time

import torch
from rsl_rl.runners import OnPolicyRunner
from rsl_rl_env import RslRlEnv

from echelon import tasks


def config(horizon: int, discount: float, entropy: float) -> dict:
    """rsl_rl's usual PPO settings on a small network."""
    net = {"class_name": "MLPModel", "hidden_dims": [128, 64], "activation": "elu", "obs_normalization": True}
    return {
        "num_steps_per_env": horizon,
        "save_interval": 10**9,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": net | {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
        "critic": dict(net),
        "algorithm": {
            "class_name": "PPO",
            "num_learning_epochs": 5,
            "num_mini_batches": 4,
            "gamma": discount,
            "lam": 0.95,
            "entropy_coef": entropy,
            "learning_rate": 1e-3,
            "desired_kl": 0.01,
        },
    }


def evaluate(task: str, runner: OnPolicyRunner, num_envs: int) -> dict[str, float]:
    """Figures of the policy's mean over exactly one episode in each environment."""
    env = tasks.make(task, tasks.info(task).config(), num_envs, torch.device("cpu"), seed=10_000)
    policy = runner.get_inference_policy()
    obs, alive, total = env.reset(), torch.ones(num_envs, dtype=torch.bool), torch.zeros(num_envs)
    ended: dict[str, torch.Tensor] = {}
    terminated = torch.zeros(num_envs)
    with torch.inference_mode():
        for _ in range(env.episode_length):
            step = env.step(policy(RslRlEnv.tensordict(obs, num_envs)))
            total += step.reward * alive
            terminated += step.terminated & alive
            done = (step.terminated | step.truncated) & alive
            for name, value in step.log.items():
                if name.startswith("episode/"):
                    ended[name] = torch.where(done, value, ended.get(name, torch.zeros(num_envs)))
            alive &= ~done
            obs = step.obs
    figures = {"return": total, "terminated": terminated, **ended}
    return {name: float(value.mean()) for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=list(tasks.TASKS))
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--horizon", type=int, default=32)
    parser.add_argument("--discount", type=float, default=0.99)
    parser.add_argument("--entropy", type=float, default=0.005)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.set_num_threads(1)  # OpenMP threads that wait by spinning starve the physics threads
    torch.manual_seed(args.seed)
    device = torch.device("cpu")
    task_config = tasks.info(args.task).config()
    env = RslRlEnv(tasks.make(args.task, task_config, args.num_envs, device, args.seed, spread_clocks=True))
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
        runner = OnPolicyRunner(env, config(args.horizon, args.discount, args.entropy), device="cpu")
    start, iterations = time.perf_counter(), 0
    while time.perf_counter() - start < args.seconds:
        runner.learn(10)
        iterations += 10
        wall, steps = time.perf_counter() - start, iterations * args.horizon * args.num_envs
        figures = " ".join(f"{name} {value:.3f}" for name, value in env.figures().items() if name != "overflow")
        print(f"{wall:5.0f} s {steps / 1e6:5.2f} M steps {steps / wall / 1e3:5.1f} k/s  {figures}", flush=True)
    print("deterministic:", {name: round(value, 3) for name, value in evaluate(args.task, runner, 64).items()})


if __name__ == "__main__":
    main()

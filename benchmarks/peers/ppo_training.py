"""Collect and update times of our PPO beside rsl_rl's, on the same task, network sizes, batch and epochs.

    python benchmarks/peers/ppo_training.py --task Hopper --iterations 20

Both run in one process and take turns, so that whatever else the machine does hits both alike; medians are reported.
rsl_rl trains separate actor and critic networks. Ours shares a trunk; for the comparison it is given a separate critic
(`critic` observations equal to the policy's), and the shared default is reported as a third column.
Each side does the bookkeeping per step that its own loop does; the adapter does none.
"""

import argparse
import contextlib
import io
import os
import platform
import statistics
import time
from dataclasses import replace

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from rsl_rl.utils import check_nan
from tensordict import TensorDict
from torch import Tensor

from echelon import tasks
from echelon.config import TrainConfig
from echelon.envs.contract import Env, Groups, State, Step
from echelon.presets import preset
from echelon.training.trainer import Trainer

Times = tuple[float, float]
"""Seconds of collecting and of updating."""


class TwinCritic:
    """An environment that shows its critic what its policy sees, which makes our model build a second trunk."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.num_envs, self.action_dim, self.device = env.num_envs, env.action_dim, env.device
        self.episode_length = env.episode_length
        self.obs_spec = {"policy": env.obs_spec["policy"], "critic": env.obs_spec["policy"]}

    def reset(self) -> Groups:
        return self._twin(self.env.reset())

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        return replace(step, obs=self._twin(step.obs), final_obs=self._twin(step.final_obs))

    def state_dict(self) -> State:
        return self.env.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.env.load_state_dict(state)

    @staticmethod
    def _twin(obs: Groups) -> Groups:
        return {"policy": obs["policy"], "critic": obs["policy"]}


class RslRlEnv(VecEnv):
    """An `Env` as rsl_rl takes it, so that its PPO trains on the same physics, rewards and clocks as ours.

    rsl_rl bootstraps a truncated row with V of the observation before the step (`time_outs`); it has no place for
    `final_obs`. It also knows no action bounds; the task clamps.
    """

    def __init__(self, env: Env) -> None:
        self.env, self.device, self.cfg = env, env.device, {}
        self.num_envs, self.num_actions, self.max_episode_length = env.num_envs, env.action_dim, env.episode_length
        self.episode_length_buf = torch.zeros(env.num_envs, dtype=torch.long, device=env.device)
        self._obs = self._named(env.reset())

    def get_observations(self) -> TensorDict:
        return self._obs

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict]:
        """One control step in rsl_rl's terms: one done flag, truncations beside it in `time_outs`."""
        step = self.env.step(actions)
        done = step.terminated | step.truncated
        self.episode_length_buf = (self.episode_length_buf + 1).masked_fill(done, 0)
        self._obs = self._named(step.obs)
        return self._obs, step.reward, done, {"time_outs": step.truncated}

    def _named(self, obs: Groups) -> TensorDict:
        return TensorDict(dict(obs), batch_size=[self.num_envs])


class Ours:
    """Our trainer, timed by its own timers; targets count as update, as rsl_rl's returns do."""

    def __init__(self, env: Env, config: TrainConfig) -> None:
        self.trainer = Trainer(env, config)

    def iterate(self) -> Times:
        self.trainer.iterate()
        seconds = self.trainer.timers.metrics()
        return seconds.pop("time/collect"), sum(seconds.values())


class Theirs:
    """rsl_rl's own loop with a clock in it."""

    def __init__(self, env: Env, config: TrainConfig, minibatches: int) -> None:
        self.env, self.horizon = RslRlEnv(env), config.update.horizon
        net = {"class_name": "MLPModel", "hidden_dims": list(config.model.hidden), "activation": "elu"}
        net["obs_normalization"] = True
        settings = {
            "num_steps_per_env": self.horizon,
            "save_interval": 10**9,
            "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
            "actor": net | {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
            "critic": dict(net),
            "algorithm": {
                "class_name": "PPO",
                "num_learning_epochs": config.update.mini_epochs,
                "num_mini_batches": minibatches,
                "desired_kl": config.update.kl_threshold,
                "learning_rate": config.update.learning_rate,
            },
        }
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
            self.runner = OnPolicyRunner(self.env, settings, device="cpu")
        self.algorithm = self.runner.alg
        self.algorithm.train_mode()
        self.obs = self.env.get_observations()

    def iterate(self) -> Times:
        start = time.perf_counter()
        with torch.inference_mode():
            for _ in range(self.horizon):
                action = self.algorithm.act(self.obs)
                self.obs, reward, done, extras = self.env.step(action)
                check_nan(self.obs, reward, done)
                self.algorithm.process_env_step(self.obs, reward, done, extras)
                self.runner.logger.process_env_step(reward, done, extras, None)
        middle = time.perf_counter()
        with torch.inference_mode():
            self.algorithm.compute_returns(self.obs)
        self.algorithm.update()
        return middle - start, time.perf_counter() - middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=["CartpoleSwingup", "Hopper"], default="Hopper")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="torch threads, for both")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    config = replace(preset(args.task), algo="ppo", policies=1)

    def env() -> Env:
        return tasks.make(args.task, config.env, config.num_envs, torch.device("cpu"), 0, spread_clocks=True)

    ours, shared = Ours(TwinCritic(env()), config), Ours(env(), config)
    theirs = Theirs(env(), config, ours.trainer.plan.minibatches)
    columns = {"rsl_rl": theirs, "echelon, separate critic": ours, "echelon, shared trunk": shared}
    for runner in columns.values():  # warm up
        runner.iterate()
    rounds = [[runner.iterate() for runner in columns.values()] for _ in range(args.iterations)]
    update = config.update
    print(f"{args.task}: {config.num_envs} environments, horizon {update.horizon}, {update.mini_epochs} epochs of")
    print(f"{ours.trainer.plan.minibatches} minibatches, layers {config.model.hidden}, {args.threads} torch thread(s),")
    print(f"{os.cpu_count()} cores, {platform.machine()}, medians of {args.iterations} iterations")
    medians = [[statistics.median(part) for part in zip(*times, strict=True)] for times in zip(*rounds, strict=True)]
    for name, (collect, learn) in zip(columns, medians, strict=True):
        ratio = f"rsl_rl / this: collect {medians[0][0] / collect:.2f}, update {medians[0][1] / learn:.2f}"
        print(f"{name:<26} collect {1e3 * collect:7.1f} ms   update {1e3 * learn:7.1f} ms   {ratio}")


if __name__ == "__main__":
    main()

"""mjlab's velocity task here (PPO, CPO) and with rsl_rl: reward against wall clock; and whether its step is recorded.

    pip install -e '.[mjlab]'
    python results/peers_mjlab/run.py --seconds 30 --seeds 0 --out results/peers_mjlab
    python results/peers_mjlab/run.py --iterations 36 --seeds 1 2 --together --out results/peers_mjlab

Equal environments, horizon, networks (512, 256, 128, actor and critic apart), passes, minibatches, discount and first
rate; the rest is each one's own. Each trains in a process of its own, for a number of seconds after its second iteration,
which compiles and records, or for a number of iterations. With `--together` those of a seed run at once: they slow each
other down, not alike, so compare only what they learned in equal steps. The reward is that of a step, averaged over an
iteration, of all environments, or of the leader's in an ensemble. Every training leaves a file in `--out`, and is not
repeated.

Then the bare step: its time, how much of that the GPU computes, and what recording it as a CUDA graph says.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from echelon.errors import UserError, require_package

TASK = "Mjlab-Velocity-Flat-Unitree-Go1"
WAYS = ("rsl_rl", "ppo", "cpo")
HORIZON, PASSES, MINIBATCHES, HIDDEN, POLICIES = 24, 5, 4, (512, 256, 128), 4


@dataclass(frozen=True)
class Limit:
    """Where a training ends; iterations count if both are given."""

    seconds: float
    iterations: int | None


class Watch:
    """Adds up the rewards of a step, on the device, and keeps a line for each iteration."""

    def __init__(self, env: Any, rows: int, limit: Limit) -> None:
        self._limit = limit
        self.lines: list[dict[str, float]] = []
        self._sum, self._steps, self._began = torch.zeros((), device=env.device), 0, 0.0
        self._iteration, self._envs, step = 0, env.num_envs, env.step

        def watched(action: torch.Tensor) -> Any:
            found = step(action)
            self._sum += found[1][:rows].mean()
            self._steps += 1
            return found

        env.step = watched

    def ends(self) -> bool:
        """After an iteration: whether it was the last."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._iteration += 1
        if self._iteration == 2:
            self._began = time.perf_counter()
        seconds = time.perf_counter() - self._began if self._iteration >= 2 else 0.0
        reward = float(self._sum) / self._steps
        steps = self._iteration * HORIZON * self._envs
        self.lines.append({"seconds": seconds, "env_steps": steps, "reward": reward})
        self._sum, self._steps = torch.zeros_like(self._sum), 0
        limit = self._limit
        return seconds >= limit.seconds if limit.iterations is None else self._iteration >= limit.iterations


def bare(num_envs: int, device: str, seed: int) -> Any:
    import mjlab.tasks  # noqa: F401  # registers them
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import load_env_cfg

    config = load_env_cfg(TASK)
    config.scene.num_envs, config.seed = num_envs, seed
    return ManagerBasedRlEnv(cfg=config, device=device)


def ours(algo: str, num_envs: int, device: str, seed: int, limit: Limit) -> list[dict[str, float]]:
    from echelon import NullView, Stop, preset, train
    from echelon.algorithms import AdversaryConfig
    from echelon.config import ModelConfig
    from echelon.envs.torch_env import TorchEnv

    start, watches = preset(f"mjlab:{TASK}"), []
    policies = POLICIES if algo == "cpo" else 1
    update = replace(
        start.update,
        horizon=HORIZON,
        mini_epochs=PASSES,
        minibatches=MINIBATCHES,
        learning_rate=1e-3,
        kl_threshold=0.01,
        entropy_coef=0.01,
        discount=0.99,
        gae_lambda=0.95,
    )

    def make_env(count: int, where: torch.device, seed: int) -> TorchEnv:
        env = bare(count, str(where), seed)
        watches.append(Watch(env, count // policies, limit))
        return TorchEnv(env)

    def ask(metrics: Any) -> Stop | None:
        return Stop("it was the last") if watches[-1].ends() else None

    with tempfile.TemporaryDirectory() as place:
        config = replace(
            start,
            algo=algo,
            seed=seed,
            policies=policies,
            num_envs=num_envs,
            iterations=10**6,
            device=device,
            out=place + "/run",
            checkpoint_every=10**6,
            model=ModelConfig(hidden=HIDDEN),
            update=update,
            adversary=AdversaryConfig(coef=0.0),
            source=None,
            task="velocity",
        )
        train(config, NullView(), make_env, [ask])
    return watches[-1].lines


def rsl_rl(num_envs: int, device: str, seed: int, limit: Limit) -> list[dict[str, float]]:
    from mjlab.rl import MjlabOnPolicyRunner, RslRlVecEnvWrapper
    from mjlab.tasks.registry import load_rl_cfg

    agent: Any = load_rl_cfg(TASK)
    env = bare(num_envs, device, seed)
    watch = Watch(env, num_envs, limit)
    settings = asdict(agent)
    torch.manual_seed(seed)  # of the networks
    settings["num_steps_per_env"] = HORIZON
    settings["algorithm"] |= {"num_learning_epochs": PASSES, "num_mini_batches": MINIBATCHES}
    for network in ("actor", "critic"):
        settings[network]["hidden_dims"] = HIDDEN
    runner = MjlabOnPolicyRunner(RslRlVecEnvWrapper(env, clip_actions=agent.clip_actions), settings, None, device)
    first = True
    while True:
        runner.learn(1, init_at_random_ep_len=first)
        first = False
        if watch.ends():
            return watch.lines


def stepping(num_envs: int, device: str) -> dict[str, Any]:
    """The bare step: milliseconds, those that the GPU computes, and whether it can be recorded."""
    env = bare(num_envs, device, 0)
    env.reset()
    action = torch.zeros(num_envs, env.single_action_space.shape[-1], device=device)
    with torch.inference_mode():
        found: dict[str, Any] = {"step_ms": 1e3 * _seconds(lambda: env.step(action))}
        if device == "cpu":
            return found
        kinds = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=kinds) as profile:
            for _ in range(20):
                env.step(action)
            torch.cuda.synchronize()
        busy = sum(event.device_time_total for event in profile.events())
        found |= {"kernels_ms": busy / 20 / 1e3, "launches": len(profile.events()) / 20}
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                env.step(action)
            found["recorded"] = True
        except Exception as error:  # whatever the capture trips over is the answer
            found["recorded"] = str(error).splitlines()[0]
    return found


def _seconds(run: Callable[[], object], times: int = 50) -> float:
    for _ in range(5):
        run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--iterations", type=int, help="instead of seconds")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--together", action="store_true", help="all ways of a seed at once")
    parser.add_argument("--out", type=Path, default=Path("mjlab_velocity"))
    parser.add_argument("--way", choices=[*WAYS, "step"], help="this one alone, of the first seed, in this process")
    given = parser.parse_args()
    if given.iterations is not None and given.iterations < 3:
        parser.error("--iterations takes 3 or more: the first two compile and record")
    try:
        require_package("mjlab", "this comparison", "mjlab")
    except UserError as error:
        sys.exit(f"error: {error}")
    given.out.mkdir(parents=True, exist_ok=True)
    if given.way:
        limit = Limit(given.seconds, given.iterations)
        made = one(given.way, given.num_envs, given.device, given.seeds[0], limit)
        _file(given.out, given.way, given.seeds[0]).write_text(json.dumps(made))
        return
    common = ["--num-envs", str(given.num_envs), "--seconds", str(given.seconds), "--device", given.device]
    common += [] if given.iterations is None else ["--iterations", str(given.iterations)]
    for seed in given.seeds:
        missing = [way for way in WAYS if not _file(given.out, way, seed).exists()]
        words = [sys.executable, __file__, *common, "--out", str(given.out), "--seeds", str(seed), "--way"]
        running: list[subprocess.Popen[bytes]] = []
        for way in missing:
            running.append(subprocess.Popen([*words, way], stdout=subprocess.DEVNULL))
            if not given.together:
                running[-1].wait()
        if any(process.wait() for process in running):
            sys.exit(f"error: a training of seed {seed} failed, and said why")
    if not _file(given.out, "step", 0).exists():
        words = [sys.executable, __file__, *common, "--out", str(given.out), "--way", "step"]
        subprocess.run(words, stdout=subprocess.DEVNULL, check=False)
    print(summary(given.out))


def one(way: str, num_envs: int, device: str, seed: int, limit: Limit) -> dict[str, Any]:
    """What its file will hold."""
    made: dict[str, Any] = {"task": TASK, "num_envs": num_envs, "way": way, "seed": seed}
    if way == "step":
        return made | stepping(num_envs, device)
    train = rsl_rl if way == "rsl_rl" else partial(ours, way)
    return made | {"lines": train(num_envs, device, seed, limit)}


def _file(out: Path, way: str, seed: int) -> Path:
    return out / ("step.json" if way == "step" else f"{way}-{seed}.json")


def summary(out: Path) -> str:
    """What each had learned in equal steps: a third, two thirds and all of the shortest's."""
    runs = [json.loads(path.read_text()) for path in sorted(out.glob("*-*.json"))]
    end = min((run["lines"][-1]["env_steps"] for run in runs), default=0)
    counts = [end / 3, 2 * end / 3, end]
    texts = ["| | seed | steps/s | " + " | ".join(f"{count / 1e6:.1f} M" for count in counts) + " |", "|---" * 6 + "|"]
    for run in runs:
        lines = run["lines"]
        rate = (lines[-1]["env_steps"] - lines[1]["env_steps"]) / max(lines[-1]["seconds"], 1e-9)
        at = [min(lines, key=lambda line, n=n: abs(line["env_steps"] - n)) for n in counts]
        rewards = " | ".join(f"{line['reward']:.4f}" for line in at)
        texts.append(f"| {run['way']} | {run['seed']} | {rate:,.0f} | {rewards} |")
    step = _file(out, "step", 0)
    return "\n".join([*texts, f"bare step: {step.read_text()}" if step.exists() else "the bare step did not run"])


if __name__ == "__main__":
    main()

"""Why is FrankaCubePush hard? How often actions without a policy find the cube, and whether it is learned once found.

    PYTHONPATH=benchmarks python results/franka_push/run.py explore [--episodes 1024] [--json FILE]
    PYTHONPATH=benchmarks python results/franka_push/run.py easy [--success-distance 0.02] [--json FILE]

`explore` plays one episode from each of the task's starts, the same starts and the same noise in every row. *Moved* is
how many cubes were ever farther than that from where they lay, *low* how many grip points were ever lower than 3 cm
over the table. *Gain* is what the moved episodes (5 mm) return beyond what their starts would with a cube that never
moves: the mean, and its standard error.

`easy` trains the task with the preset's settings but a small network, from starts with the cube between the open
fingers and the goal 7 to 15 cm away. Success and moved are shares of the leader's environments, of the last episode of
each; sigma is every policy's mean over the actions. All runs on a CPU.
"""

import argparse
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mujoco
import torch
from command import append, command, options
from torch import Tensor

from echelon.config import ModelConfig
from echelon.tasks import preset
from echelon.tasks.franka_cube.task import TABLE_TOP, FrankaCubePush, FrankaCubePushConfig, closeness
from echelon.tasks.mujoco_task import StartState
from echelon.training.trainer import Trainer

CPU = torch.device("cpu")
FAR, LOW = 0.03, 0.03
"""Metres that a cube was moved by, and of the grip point over the table."""
POSE, GRIP = torch.tensor((0.0, 0.7052, 0.0, -2.4576, 0.0, 3.1628, 0.7854)), (-0.02, 0.0)
"""Joint angles for an upright hand with the grip point here, and as high as the cube's centre."""
LOOSE, BENT = 0.005, 0.005
"""Largest deviations from these, in metres and radians: together less than the centimetre beside each finger."""
EVERY = 5
"""Iterations in a line about training."""
Draw = Callable[[Tensor, Tensor], Tensor]
Row = dict[str, Any]

ACTIONS: dict[str, Draw] = {
    **{f"sigma {sigma:g}": (lambda noise, _, sigma=sigma: sigma * noise) for sigma in (0.5, 1.0, 2.0, 4.0)},
    "bang-bang": lambda noise, _: noise.sign(),
    "mean of size 2, sigma 1": lambda noise, mean: 2.0 * mean + noise,
}
"""An action from noise and from noise that stays for the episode, standard normal `[N, A]` both."""
PHYSICS: dict[str, dict[str, float | tuple[float, ...]]] = {
    "ours": {},
    "friction 0.3": {"geom_friction": (0.3, 0.005, 0.0001)},
    "no drag": {"dof_dampingpoly": 0.0},
    "MuJoCo's default contacts": {"geom_solref": (0.02, 1.0), "geom_solimp": (0.9, 0.95, 0.001, 0.5, 2.0)},
}
"""Fields of the model, the same for all geoms or degrees of freedom."""
VARIED = ("sigma 1", "bang-bang")
"""Actions that are tried with other physics than ours too."""


def other_physics(name: str, episodes: int, seed: int = 0) -> FrankaCubePush:
    """The task with a changed model."""

    class Changed(FrankaCubePush):
        def model(self) -> mujoco.MjModel:
            model = super().model()
            for field, value in PHYSICS[name].items():
                getattr(model, field)[:] = value
            return model

    return Changed(FrankaCubePushConfig(), episodes, CPU, seed)


@dataclass
class Episodes:
    """What became of the first episode of each environment, `[N]`; what is `bad` counts for nothing."""

    gain: Tensor
    moved: Tensor
    far: Tensor
    low: Tensor
    succeeded: Tensor
    bad: Tensor


def untouched_return(env: FrankaCubePush) -> Tensor:
    """`[N]`: of an episode in which the cube stays where it is."""
    near, config = closeness(env.aside().double()), env.config
    return (env.episode_length - 1) * config.align_reward * near + config.end_cost * (near - 1.0)


def play(env: FrankaCubePush, draw: Draw, seed: int = 0) -> Episodes:
    generator, shape = torch.Generator().manual_seed(1000 + seed), (env.num_envs, env.action_dim)
    mean = torch.randn(shape, generator=generator)
    env.reset()
    start, running = env.cube()[:, :2].clone(), torch.ones(env.num_envs, dtype=torch.bool)
    found = Episodes(-untouched_return(env), *(torch.zeros_like(running) for _ in range(5)))
    for _ in range(env.episode_length):
        step = env.step(draw(torch.randn(shape, generator=generator), mean))
        after, log = step.final_obs["policy"], step.log  # of the state before a reset
        found.bad |= running & log["quarantined"].bool()
        found.gain += step.reward.double() * running
        found.moved |= running & log["episode/moved"].bool()
        found.far |= running & ((after[:, 4:6] - start).norm(dim=1) > FAR)
        found.low |= running & (after[:, 12] - TABLE_TOP < LOW)
        found.succeeded |= running & log["episode/successes"].bool()
        running &= ~(step.terminated | step.truncated)
    return found


def summarise(found: Episodes) -> Row:
    fine, names = ~found.bad, ("moved", "far", "low", "succeeded")
    counts = {name: int((getattr(found, name) & fine).sum()) for name in names}
    gain = found.gain[found.moved & fine].tolist()
    error = statistics.stdev(gain) / math.sqrt(len(gain)) if len(gain) > 1 else None
    return {"episodes": int(fine.sum()), **counts, "gain": statistics.mean(gain) if gain else None, "gain_se": error}


def explore(args: argparse.Namespace) -> Iterator[Row]:
    print("| actions | physics | episodes | moved > 5 mm | > 3 cm | low | successes | gain |\n" + "|---" * 8 + "|")
    rows = [(name, "ours") for name in ACTIONS] + [(name, other) for other in list(PHYSICS)[1:] for name in VARIED]
    for actions, physics in rows:
        env = other_physics(physics, args.episodes, args.seed)
        found = summarise(play(env, ACTIONS[actions], args.seed))
        gain = "" if found["gain_se"] is None else f"{found['gain']:+.2f} ± {found['gain_se']:.2f}"
        counts = " | ".join(str(found[name]) for name in ("episodes", "moved", "far", "low", "succeeded"))
        print(f"| {actions} | {physics} | {counts} | {gain} |", flush=True)
        yield {"study": "explore", "actions": actions, "physics": physics, "seed": args.seed, **found}


class Caged(FrankaCubePush):
    """The task from other starts: the cube between the open fingers, the goal near."""

    def start_state(self) -> StartState:
        start = super().start_state()
        cube, joints = start.qpos[:, :7], start.qpos[:, 7:14]
        cube[:, 0], cube[:, 1] = GRIP[0] + self.uniform(-LOOSE, LOOSE), GRIP[1] + self.uniform(-LOOSE, LOOSE)
        cube[:, 3], cube[:, 4:] = 1.0, 0.0
        joints.copy_(POSE + self.uniform(-BENT, BENT, 7))
        away, angle = self.uniform(0.07, 0.15), self.uniform(-math.pi, math.pi)
        self._drawn_goal[:, :2] = cube[:, :2] + torch.stack((away * angle.cos(), away * angle.sin()), dim=1)
        return start


def easy(args: argparse.Namespace) -> Iterator[Row]:
    base = preset("FrankaCubePush")
    env = FrankaCubePushConfig(success_distance=args.success_distance)
    base = replace(base, env=env, num_envs=args.num_envs, seed=args.seed, device="cpu")
    base = replace(base, model=ModelConfig(hidden=(128, 64)), diagnostics=replace(base.diagnostics, every=0))
    print("| algorithm | M steps | success | moved | return | sigma |\n" + "|---" * 6 + "|")
    for algo in args.algos:
        config = replace(base, algo=algo)
        trainer = Trainer(Caged(env, args.num_envs, CPU, args.seed, spread_clocks=True), config)
        per_iteration = config.steps_per_iteration
        for iteration in range(1, math.ceil(args.env_steps / per_iteration) + 1):
            metrics = trainer.iterate().metrics
            if iteration % EVERY:
                continue
            steps = iteration * per_iteration
            sigma = [metrics[f"sigma/policy_{i}"] for i in range(trainer.layout.policies)]
            success, moved, gained = (metrics[f"{name}/leader"] for name in ("successes", "moved", "return"))
            shown = ", ".join(f"{value:.2f}" for value in sigma)
            print(f"| {algo} | {steps / 1e6:.2f} | {success:.3f} | {moved:.3f} | {gained:.0f} | {shown} |", flush=True)
            row = {"study": "easy", "algo": algo, "num_envs": args.num_envs, "seed": args.seed, "env_steps": steps}
            row |= {"success_distance": args.success_distance, "success": success, "moved": moved}
            yield row | {"return": gained, "sigma": [round(value, 3) for value in sigma]}


def main() -> None:
    parser = options(__doc__)
    studies = parser.add_subparsers(dest="study", required=True)
    exploring, training = studies.add_parser("explore"), studies.add_parser("easy")
    exploring.add_argument("--episodes", type=int, default=1024, help="of each row")
    training.add_argument("--algos", nargs="+", choices=("ppo", "sapg", "cpo"), default=["ppo", "cpo"])
    training.add_argument("--num-envs", type=int, default=1920)
    training.add_argument("--env-steps", type=int, default=2_000_000)
    training.add_argument("--success-distance", type=float, default=0.005, help="metres")
    for study in (exploring, training):
        study.add_argument("--seed", type=int, default=0)
        study.add_argument("--json", type=Path, help="append a line per row to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)  # torch's threads wait by spinning, which starves the physics
    for row in (explore if args.study == "explore" else easy)(args):
        append(args.json, [row])


if __name__ == "__main__":
    command(main)

"""What randomised physics costs of an iteration: two trainers of a task, plain and `--variant robust`, take turns.

    PYTHONPATH=benchmarks python results/randomise/cost.py Anymal AllegroHand --json results/randomise/cost.jsonl

Both train in one process with the task's default PPO, so whatever else the machine does meets both alike. Reported are
medians of an iteration and of its parts in milliseconds, and the median over the turns of robust over plain.
"""

import statistics
from collections import defaultdict
from pathlib import Path

import torch
from command import append, command, markdown, options

from echelon import configure
from echelon.bench.measure import WARM_UPS, Clock, _collecting
from echelon.tasks import maker
from echelon.training.resolve import resolve
from echelon.training.setup import as_seen, make_trainer, set_up_torch
from echelon.training.trainer import Trainer

KINDS = {"plain": (), "robust": ("--variant", "robust")}


def build(task: str, flags: tuple[str, ...], sizes: tuple[str, ...]) -> tuple[Trainer, Clock]:
    config = resolve(configure(task, ("--algo", "ppo", *flags, *sizes)), fit_envs=not sizes).config
    set_up_torch(config)
    env = as_seen(maker(config, spread_clocks=True)(config.num_envs, torch.device(config.device), 0), config)
    trainer = make_trainer(env, config)
    return trainer, Clock(env.device, [trainer.generator, env.generator], 5, config.capture)


def measure(task: str, sizes: tuple[str, ...], repeats: int) -> dict[str, object]:
    """Medians of both kinds in turns."""
    made = {kind: build(task, flags, sizes) for kind, flags in KINDS.items()}
    times: dict[str, dict[str, list[float]]] = {kind: defaultdict(list) for kind in KINDS}
    for turn in range(-WARM_UPS, repeats):
        for kind in sorted(KINDS, reverse=bool(turn % 2)):  # who goes first alternates
            trainer, clock = made[kind]
            spent = {"iteration": clock.once(trainer.iterate)}
            spent |= {name.removeprefix("time/"): 1000 * x for name, x in trainer.timers.metrics().items()}
            for name, x in spent.items() if turn >= 0 else ():
                times[kind][name].append(x)
    ratios = [b / a for a, b in zip(*(times[kind]["iteration"] for kind in KINDS), strict=True)]
    found: dict[str, object] = {"task": task, "device": str(made["plain"][0].env.device), "turns": repeats}
    found |= {"environments": made["plain"][0].config.num_envs, "ratio": statistics.median(ratios)}
    for kind, (trainer, clock) in made.items():
        parts = {name: statistics.median(values) for name, values in times[kind].items()}
        found[kind] = {name: round(ms, 3) for name, ms in (parts | _collecting(trainer, clock)).items()}
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--num-envs", type=int)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    for task in given.tasks:
        found = measure(task, ("--num-envs", str(given.num_envs)) if given.num_envs else (), given.repeats)
        append(given.json, [found])
        plain, robust = found["plain"], found["robust"]
        assert isinstance(plain, dict)
        assert isinstance(robust, dict)
        rows += [(task, name, f"{plain[name]:.2f}", f"{robust[name]:.2f}") for name in plain]
        rows += [(task, "robust over plain, in turns", "", f"{found['ratio']:.3f}")]
    print(markdown(("task", "part", "plain, ms", "robust, ms"), rows))


if __name__ == "__main__":
    command(main)

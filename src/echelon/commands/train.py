"""`echelon train`: train a task, or resume its run."""

import shlex
import time
from typing import TYPE_CHECKING

from echelon.commands import INTERRUPTED
from echelon.commands.tasks import task_list
from echelon.errors import UserError, nearest

if TYPE_CHECKING:
    from echelon.config import TrainConfig

LARGE, CPU_ENVS = 1024, 384
"""Presets with more environments than the first are sized for a GPU; on a CPU they get the second number, which
divides into every preset's minibatches."""

USAGE = """\
usage: echelon train TASK [flags]

Train TASK, or resume its run: the same command goes on where it stopped.
The flags everybody types; echelon train TASK --help lists all, with that task's defaults:

  --algo {ppo,pbt,sapg,cpo}  algorithm (default: cpo)
  --policies M               one leader and M-1 followers, or M members of a population (default: 6)
  --num-envs N               environments simulated side by side
  --iterations K             how long to train, or:
  --env-steps S              the same in environment steps
  --seed SEED                decides everything random (default: 0)
  --device {auto,cpu,cuda}   where to train (default: auto)
  --out DIR                  run folder (default: runs/TASK-ALGO-sSEED)

tasks:
"""


def run(arguments: list[str]) -> int:
    """Train, or resume."""
    if not arguments:
        raise UserError("train needs a task, as in echelon train CartpoleSwingup; echelon train --help lists them")
    task, *flags = arguments
    if task in ("-h", "--help"):
        print(USAGE + task_list(), end="")
        return 0
    if task.startswith("-"):
        raise UserError(f"the task comes first, as in echelon train CartpoleSwingup {task}")
    from echelon.config.checks import validate
    from echelon.console.view import choose_view
    from echelon.console.wording import duration

    config = configure(task, flags)
    validate(config)

    from echelon.training.loop import train

    view, started = choose_view(), time.monotonic()
    command = shlex.join(["echelon", "train", *arguments])
    try:
        folder = train(config, view)
    except KeyboardInterrupt:
        view.stop()
        print(f"Stopped. The same command goes on from the last checkpoint, if there is one:  {command}")
        return INTERRUPTED
    finally:
        view.stop()
    print(f"\nThe run is in {folder.path}, after {duration(time.monotonic() - started)}.")
    print(f"  score it   {shlex.join(['echelon', 'evaluate', str(folder.path)])}")
    print(f"  resume it  {command}  (the same command, with more --iterations or --env-steps)")
    return 0


def configure(task: str, flags: list[str]) -> "TrainConfig":
    """The task's preset with `flags` laid over it, in the size that this machine and the algorithm allow."""
    from echelon.console.flags import parse
    from echelon.presets import preset
    from echelon.tasks import TASKS

    if task not in TASKS:
        raise UserError(f"{task} is not a task{nearest(task, TASKS) or '; echelon tasks lists them'}")
    config = parse(preset(task), flags, f"echelon train {task}", TASKS[task].description)
    return fit_to_population(fit_to_device(config, flags), flags)


def fit_to_device(config: "TrainConfig", flags: list[str]) -> "TrainConfig":
    """Presets sized for a GPU get fewer environments on a CPU, unless the user named a number."""
    from dataclasses import replace

    import torch

    on_cpu = config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available())
    if _names_envs(flags) or not on_cpu or config.num_envs <= LARGE:
        return config
    print(f"on a CPU: {CPU_ENVS} environments instead of {config.num_envs:,}; --num-envs sets another number")
    return replace(config, num_envs=CPU_ENVS)


def fit_to_population(config: "TrainConfig", flags: list[str]) -> "TrainConfig":
    """A population's members have equally many environments, also where the preset's number does not divide."""
    from dataclasses import replace

    over = config.num_envs % max(1, config.num_policies)  # a number that cannot be meant is refused later
    if config.algo != "pbt" or _names_envs(flags) or not over or config.num_envs < config.num_policies:
        return config
    print(f"{config.num_envs - over} environments instead of {config.num_envs}: as many for each member")
    return replace(config, num_envs=config.num_envs - over)


def _names_envs(flags: list[str]) -> bool:
    return any(flag.split("=")[0].replace("_", "-") == "--num-envs" for flag in flags)

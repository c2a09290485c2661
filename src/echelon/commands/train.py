"""`echelon train`: train a task, or resume its run."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from echelon.commands import INTERRUPTED
from echelon.commands.tasks import task_list
from echelon.errors import UserError, nearest

if TYPE_CHECKING:
    from echelon.config import TrainConfig
    from echelon.training.resolve import Resolved

USAGE = """\
usage: echelon train TASK [flags]

Train TASK, or resume its run: the same command goes on where it stopped.
The flags everybody types; echelon train TASK --help lists all, with that task's defaults:

  --algo {ppo,pbt,sapg,cpo}  algorithm (default: cpo)
  --variant NAME ...         named changes of the preset (echelon variants lists them)
  --policies M               one leader and M-1 followers, or M members of a population (default: 6)
  --num-envs N               environments simulated side by side
  --iterations K             how long to train, or:
  --env-steps S              the same in environment steps
  --seed SEED                decides everything random (default: 0)
  --device {auto,cpu,cuda}   where to train (default: auto)
  --out DIR                  run folder (default: runs/TASK-ALGO-sSEED, or with the variant for ALGO)

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
    resolved = resolve_flags(task, flags)
    for note in resolved.notes:
        print(note)

    from echelon.console.view import choose_view
    from echelon.console.wording import duration
    from echelon.training.loop import train

    view, started = choose_view(), time.monotonic()
    command = shlex.join(["echelon", "train", *arguments])
    try:
        folder = train(resolved, view)
    except KeyboardInterrupt:
        view.stop()
        print(f"Stopped. The same command goes on from the last checkpoint, if there is one:  {command}")
        return INTERRUPTED
    finally:
        view.stop()
    print(f"\nThe run is in {folder.path}, after {duration(time.monotonic() - started)}.")
    for what, words in (
        ("score it", ["evaluate", str(folder.path)]),
        ("watch it", ["play", str(folder.path)]),
        ("record it", ["record", str(folder.path)]),
        ("report it", ["report", str(folder.path), "--open"]),
    ):
        print(f"  {what:<9}  {shlex.join(['echelon', *words])}")
    print(f"  resume it  {command}  (the same command, with more --iterations or --env-steps)")
    return 0


def resolve_flags(task: str, flags: list[str]) -> "Resolved":
    """What `echelon train TASK FLAGS` trains. A number of environments that nobody typed may be fitted."""
    from echelon.training.resolve import resolve

    return resolve(configure(task, flags), fit_envs=not names_envs(flags))


def configure(task: str, flags: list[str], variants: Sequence[str] = ()) -> "TrainConfig":
    """The task's preset, changed by `variants` (or those that `flags` name) and then by `flags`."""
    from echelon.console.flags import parse
    from echelon.presets import preset
    from echelon.presets.variants import apply_variants
    from echelon.tasks import TASKS

    if task not in TASKS:
        raise UserError(f"{task} is not a task{nearest(task, TASKS) or '; echelon tasks lists them'}")
    prog, description = f"echelon train {task}", TASKS[task].description
    config = parse(preset(task), flags, prog, description)
    names = variants or config.variant
    if not names:
        return config
    # A variant may depend on what the flags say (the horizon, the number of policies), and still they win over it.
    varied = apply_variants(config, names)
    return replace(parse(varied, flags, prog, description), variant=varied.variant)


def names_envs(flags: list[str]) -> bool:
    """Whether the user typed how many environments to simulate."""
    return any(flag.split("=")[0].replace("_", "-") == "--num-envs" for flag in flags)

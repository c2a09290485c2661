"""The commands: parse, call, print. A mistake is one sentence on standard error and exit code 2.

Nothing slow is imported before it is needed, so that `echelon --help` answers at once.
"""

import os
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from echelon.errors import UserError, nearest

if TYPE_CHECKING:
    from echelon.config import TrainConfig

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells count it."""

LARGE, CPU_ENVS = 1024, 384
"""Presets with more environments than the first are sized for a GPU; on a CPU they get the second number, which
divides into every preset's minibatches."""

OVERVIEW = """\
usage: echelon COMMAND ...

Train one robot policy with the help of many.

commands:
  tasks                      list the tasks
  train TASK [flags]         train, or resume: the same command goes on where it stopped
  evaluate RUN [flags]       score every policy of a run

echelon COMMAND --help says more, echelon train TASK --help lists every setting of a task.
"""

TRAIN_USAGE = """\
usage: echelon train TASK [flags]

Train TASK, or resume its run: the same command goes on where it stopped.
The flags everybody types; echelon train TASK --help lists all, with that task's defaults:

  --algo {ppo,sapg,cpo}      algorithm (default: cpo)
  --policies M               one leader and M-1 followers (default: 6)
  --num-envs N               environments simulated side by side
  --iterations K             how long to train, or:
  --env-steps S              the same in environment steps
  --seed SEED                decides everything random (default: 0)
  --device {auto,cpu,cuda}   where to train (default: auto)
  --out DIR                  run folder (default: runs/TASK-ALGO-sSEED)

tasks:
"""


@dataclass(frozen=True)
class EvaluateFlags:
    """Flags of `echelon evaluate`."""

    num_envs: int = 64
    """Environments per policy; each counts one episode."""
    seed: int = 1000
    """Decides the episodes. Not the training seed, so that they are new ones."""
    json: str | None = None
    """Where to write the scores; evaluation.json in the run folder unless given."""
    checkpoint: Literal["newest", "best"] = "newest"
    """Which checkpoint to score."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to simulate; auto takes CUDA where there is one."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _dispatch(arguments)
    except UserError as error:
        print(f"echelon: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `echelon tasks | head` closed its end; nothing more can be written there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _dispatch(arguments: list[str]) -> int:
    """Hand the rest of the line to its command."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(OVERVIEW, end="")
        return 0
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"echelon {version('echelon')}")
        return 0
    command = COMMANDS.get(arguments[0])
    if command is None:
        raise UserError(
            f"{arguments[0]} is not a command of echelon"
            f"{nearest(arguments[0], COMMANDS) or '; there are ' + ', '.join(COMMANDS)}"
        )
    try:
        return command(arguments[1:])
    except SystemExit as leaving:  # tyro leaves this way once it has printed a help page.
        return leaving.code if isinstance(leaving.code, int) else 0


def _tasks(arguments: list[str]) -> int:
    """List the tasks."""
    if arguments[:1] in (["-h"], ["--help"]):
        print("usage: echelon tasks\n\nList the tasks that echelon train takes.")
        return 0
    if arguments:
        raise UserError(f"echelon tasks takes no arguments, but got {shlex.join(arguments)}")
    print(_task_list(), end="")
    return 0


def _train(arguments: list[str]) -> int:
    """Train, or resume."""
    if not arguments:
        raise UserError("train needs a task, as in echelon train CartpoleSwingup; echelon train --help lists them")
    task, *flags = arguments
    if task in ("-h", "--help"):
        print(TRAIN_USAGE + _task_list(), end="")
        return 0
    if task.startswith("-"):
        raise UserError(f"the task comes first, as in echelon train CartpoleSwingup {task}")
    from echelon.config_checks import validate
    from echelon.flags import parse
    from echelon.presets import preset
    from echelon.runs.view import choose_view
    from echelon.runs.wording import duration
    from echelon.tasks import TASKS

    if task not in TASKS:
        raise UserError(f"{task} is not a task{nearest(task, TASKS) or '; echelon tasks lists them'}")
    config = parse(preset(task), flags, f"echelon train {task}", TASKS[task].description)
    config = _fit_to_device(config, flags)
    validate(config)

    from echelon.train import train

    view, started = choose_view(), time.monotonic()
    command = shlex.join(["echelon", "train", *arguments])
    try:
        folder = train(config, view)
    except KeyboardInterrupt:
        view.stop()
        print(f"Stopped. The same command resumes it:  {command}")
        return INTERRUPTED
    finally:
        view.stop()
    print(f"\nThe run is in {folder.path}, after {duration(time.monotonic() - started)}.")
    print(f"  score it   {shlex.join(['echelon', 'evaluate', str(folder.path)])}")
    print(f"  resume it  {command}  (the same command, with more --iterations or --env-steps)")
    return 0


def _fit_to_device(config: "TrainConfig", flags: list[str]) -> "TrainConfig":
    """Presets sized for a GPU get fewer environments on a machine without one, unless the user named a number."""
    from dataclasses import replace

    import torch

    named = any(flag.split("=")[0].replace("_", "-") == "--num-envs" for flag in flags)
    on_cpu = config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available())
    if named or not on_cpu or config.num_envs <= LARGE:
        return config
    print(f"no CUDA GPU: {CPU_ENVS} environments instead of {config.num_envs:,}; --num-envs sets another number")
    return replace(config, num_envs=CPU_ENVS)


def _evaluate(arguments: list[str]) -> int:
    """Score every policy of a run."""
    from echelon.flags import parse

    asks_help = bool({"-h", "--help"} & set(arguments))
    if not asks_help and (not arguments or arguments[0].startswith("-")):
        raise UserError("evaluate needs a run folder first, as in echelon evaluate runs/CartpoleSwingup-cpo-s0")
    run, *flags = ["RUN", "--help"] if asks_help else arguments
    given = parse(EvaluateFlags(), flags, f"echelon evaluate {run}", "Score every policy of a run.")
    if given.num_envs < 1:
        raise UserError(f"--num-envs must be at least 1, not {given.num_envs}")
    if given.seed < 0:
        raise UserError(f"--seed must be at least 0, not {given.seed}")

    from pathlib import Path

    from rich.console import Console

    from echelon.config_checks import require_device
    from echelon.runs.folder import RunFolder

    folder = RunFolder.open(run)
    require_device(given.device)

    from echelon.evaluate import evaluate
    from echelon.runs.scores import headline, score_table, write_scores

    evaluation = evaluate(folder, given.num_envs, given.seed, given.device, given.checkpoint)
    target = folder.evaluation if given.json is None else Path(given.json)
    print(headline(evaluation))
    # A table in a log is not folded to the 80 columns that rich assumes there.
    Console(width=None if sys.stdout.isatty() else 240).print(score_table(evaluation))
    try:
        write_scores(evaluation, target)
    except OSError as error:
        raise UserError(f"the scores cannot be written to {target}: {error.strerror}; choose another --json") from None
    print(f"Written to {target}")
    return 0


def _task_list() -> str:
    """A line per task."""
    from echelon.tasks import TASKS

    width = max(map(len, TASKS))
    return "".join(f"  {name:<{width}}  {TASKS[name].description}\n" for name in TASKS)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: object = None,
) -> None:
    """Warnings without the line of code they come from, which says nothing to a user."""
    print(f"warning: {message}", file=sys.stderr)


COMMANDS: dict[str, Callable[[list[str]], int]] = {"tasks": _tasks, "train": _train, "evaluate": _evaluate}

if __name__ == "__main__":
    sys.exit(main())

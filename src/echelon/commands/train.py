"""`echelon train`: train a task, or resume its run."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from echelon.commands import INTERRUPTED, PREEMPTED
from echelon.commands.tasks import task_list
from echelon.errors import UserError
from echelon.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from echelon.config import TrainConfig
    from echelon.training.callbacks import CheckpointCallback
    from echelon.training.resolve import Resolved

USAGE = """\
usage: echelon train TASK [flags]
       echelon train --env SOURCE [flags]
       echelon train --resume RUN [flags]

Train TASK, or resume its run: the same command goes on where it stopped. With --resume the folder alone will do, and
flags change the run's settings from here on, which is written down. An environment that is not built in is named by
where it comes from: gymnasium:Walker2d-v5, mjlab:NAME, isaaclab:NAME, maniskill:NAME, playground:NAME, or
mypackage.module:make for a function make(num_envs, device, seed).
torchrun --nproc-per-node 8 -m echelon train TASK [flags] trains one run on eight GPUs.
The flags everybody types; echelon train TASK --help lists all, with that task's defaults:

  --algo NAME                ppo, pbt, sapg or cpo (default: what was found best for TASK, else cpo)
  --preset {best,paper}      what to start from (default: best)
  --variant NAME ...         named changes of the preset (echelon variants lists them)
  --policies M               one leader and M-1 followers, or M members of a population (default: 6)
  --num-envs N               environments simulated side by side
  --iterations K             how long to train, or:
  --env-steps S              the same in environment steps
  --until METRIC>=VALUE      stop earlier, as in return/leader>=500
  --from RUN                 begin with the networks of another run
  --evaluate-every K         score all policies every K iterations, into evaluations.jsonl of the run
  --film-every K             film the leader every K iterations, into films/ of the run
  --seed SEED                decides everything random (default: 0)
  --seeds N, or --seeds A B  seeds 0 to N-1, or those named, side by side in one process; a run folder each
  --device {auto,cpu,cuda}   where to train (default: auto)
  --env-arg NAME=VALUE ...   arguments for an environment that is not built in
  --out DIR                  run folder (default: runs/TASK-ALGO-sSEED, or with the variant for ALGO)

tasks:
"""


def run(arguments: list[str]) -> int:
    """Train, or resume."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE + task_list(), end="")
        return 0
    from echelon.ranks.joining import join

    ranks = join()
    resolved, seeds, callbacks, change = ranks.attempt(lambda: _read(arguments, ranks))

    from echelon.console.interrupt import Preempted
    from echelon.console.view import NullView, choose_view
    from echelon.console.wording import duration
    from echelon.training.loop import train, train_seeds

    if not ranks.first:
        code = 0
        try:
            if seeds:
                train_seeds(resolved, seeds, NullView(), callbacks=callbacks)
            else:
                train(resolved, NullView(), callbacks=callbacks, change=change)
        except KeyboardInterrupt as interrupt:
            code = PREEMPTED if isinstance(interrupt, Preempted) else INTERRUPTED
        ranks.leave()
        return code
    for note in resolved.notes:
        print(note)
    view, started = choose_view(), time.monotonic()
    command = shlex.join(["train", *arguments])
    command = f"echelon {command}" if ranks.size == 1 else f"torchrun ... -m echelon {command}"
    try:
        if seeds:
            folders = train_seeds(resolved, seeds, view, callbacks=callbacks)
        else:
            folders = [train(resolved, view, callbacks=callbacks, change=change)]
    except KeyboardInterrupt as interrupt:
        view.stop()
        print(f"Stopped. The same command goes on from the last checkpoint, if there is one:  {command}")
        ranks.leave()
        return PREEMPTED if isinstance(interrupt, Preempted) else INTERRUPTED
    finally:
        view.stop()
    ranks.leave()
    first, last, spent = str(folders[0].path), str(folders[-1].path), duration(time.monotonic() - started)
    where = f"The runs are in {first} to {last}" if seeds else f"The run is in {first}"
    print(f"\n{where}, after {spent}.")
    for what, words in (
        ("score it", ["evaluate", first]),
        ("watch it", ["play", first]),
        ("record it", ["record", first]),
        ("report it", ["report", *(str(folder.path) for folder in folders), "--open"]),
    ):
        print(f"  {what:<9}  {shlex.join(['echelon', *words])}")
    print(f"  resume it  {command}  (the same command, with more --iterations or --env-steps)")
    return 0


def _read(arguments: list[str], ranks: Ranks) -> "tuple[Resolved, list[int], list[CheckpointCallback], bool]":
    """Settings, seeds of `--seeds`, evaluations and films, and whether settings may differ from the stored ones."""
    callbacks, words = checkpoint_callbacks(arguments)
    resumed = resume_flags(words, ranks)
    if resumed is not None:
        return resumed, [], callbacks, True
    task, flags = split_task(words, "train")
    seeds, flags = split_seeds(flags, f"echelon train {task}")
    return resolve_flags(task, flags, ranks), seeds, callbacks, False


def checkpoint_callbacks(arguments: list[str]) -> "tuple[list[CheckpointCallback], list[str]]":
    """What `--evaluate-every` and `--film-every` ask for, and all other words."""
    from echelon.console.flags import one_count, split_flags

    names = ("--evaluate-every", "--film-every")
    if not any(names_flag(arguments, name) for name in names):
        return [], arguments
    place = [] if arguments[0].startswith("-") else arguments[:1]
    given, rest = split_flags(arguments[len(place) :], names, "echelon train")
    found: list[CheckpointCallback] = []
    if names[0] in given:
        from echelon.evaluation.during import evaluate_every

        found.append(evaluate_every(one_count(given, names[0], 1)))
    if names[1] in given:
        from echelon.errors import require_package

        require_package("mujoco", names[1], "mujoco")
        from echelon.viewing.during import film_every

        found.append(film_every(one_count(given, names[1], 1)))
    return found, [*place, *rest]


def resume_flags(arguments: list[str], ranks: Ranks) -> "Resolved | None":
    """Settings of `echelon train --resume RUN FLAGS`: the stored ones, changed by flags. None without `--resume`."""
    if not names_flag(arguments, "--resume"):
        return None
    from echelon.algorithms import with_algorithm
    from echelon.config import from_dict, to_dict
    from echelon.console.flags import one_value, parse, split_flags
    from echelon.runs.folder import RunFolder
    from echelon.tasks import preset
    from echelon.training.resolve import resolve

    given, flags = split_flags(arguments, ("--resume",), "echelon train --resume RUN")
    folder = RunFolder.open(one_value(given, "--resume", ""))
    for flag in ("--out", "--from", "--start-from", "--variant", "--algo", "--seeds"):
        if names_flag(flags, flag):
            raise UserError(f"{flag} would be another run; leave it out with --resume, or name a new folder with --out")
    stored = folder.config
    start = from_dict(with_algorithm(preset(stored.source or stored.task), stored.algo), to_dict(stored))
    config = parse(start, flags, f"echelon train --resume {folder.path}", "Go on with a run, with changed settings.")
    return resolve(replace(config, out=str(folder.path)), ranks=ranks)


def split_task(arguments: list[str], command: str) -> tuple[str, list[str]]:
    """The task, given first or as `--env SOURCE`, and the flags."""
    from echelon.console.flags import one_value, split_flags

    if not arguments:
        raise UserError(
            f"{command} needs a task, as in echelon {command} CartpoleSwingup; echelon {command} --help lists them"
        )
    if not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    given, flags = split_flags(arguments, ("--env",), f"echelon {command}")
    source = one_value(given, "--env", "")
    if not source:
        raise UserError(f"the task comes first, as in echelon {command} CartpoleSwingup {arguments[0]}")
    return source, flags


def split_seeds(flags: list[str], prog: str) -> tuple[list[int], list[str]]:
    """The seeds that `--seeds` names, none without it, and the other flags."""
    from echelon.config.ranges import SEEDS, require
    from echelon.console.flags import split_flags

    if not names_flag(flags, "--seeds"):
        return [], flags
    given, rest = split_flags(flags, ("--seeds",), prog)
    words = given["--seeds"]
    if names_flag(rest, "--seed"):
        raise UserError("--seed and --seeds were both given; leave one of them out")
    if not all(word.isdecimal() for word in words):
        raise UserError(f"--seeds takes how many (--seeds 8) or which (--seeds 1 2 3), not {' '.join(words)}")
    numbers = [int(word) for word in words]
    if len(numbers) > 1:
        return numbers, rest
    require("seeds", numbers[0], SEEDS)
    return list(range(numbers[0])), rest


def resolve_flags(task: str, flags: list[str], ranks: Ranks = ALONE) -> "Resolved":
    """Settings of `echelon train TASK FLAGS`. Without `--num-envs`, the number of environments may be adapted."""
    from echelon.training.resolve import resolve

    return resolve(configure(task, flags), fit_envs=not names_flag(flags, "--num-envs"), ranks=ranks)


def configure(task: str, flags: list[str], variants: Sequence[str] = ()) -> "TrainConfig":
    """The task's preset, changed by `variants` (or those that `flags` name) and then by `flags`."""
    from echelon.algorithms import with_algorithm
    from echelon.algorithms.settings import BUILT_IN
    from echelon.algorithms.variants import apply_variants
    from echelon.console.flags import joined, parse
    from echelon.tasks import TASKS, best_variants, preset

    start, algo = preset(task), _typed(flags, "--algo")
    if algo is not None and algo not in BUILT_IN:  # its settings are flags too
        start = with_algorithm(start, algo)
    description = TASKS[task].description if task in TASKS else f"Train in {start.source}"
    description += ". Besides these: --seeds, --evaluate-every, --film-every (echelon train --help)."
    prog, flags = f"echelon train {task}", joined(flags, "--env-arg")
    flags = ["--start-from" if flag == "--from" else flag.replace("--from=", "--start-from=") for flag in flags]
    config = parse(start, flags, prog, description)
    if config.env_arg and config.source is None:
        raise UserError(f"--env-arg is for environments that are not built in; {task} has --env.NAME flags instead")
    named = variants or config.variant
    names = named or best_variants(config, algo_chosen=names_flag(flags, "--algo"))
    if not names:
        return config
    # A variant may depend on what the flags say (the horizon, the number of policies), and still they win over it.
    varied = apply_variants(config, names)
    final = parse(varied, flags, prog, description)
    return replace(final, variant=varied.variant, preset="paper" if named else final.preset)


def _typed(flags: list[str], name: str) -> str | None:
    """The value that the user typed after a flag, if there is one."""
    for flag, following in pairwise([*flags, ""]):
        typed, attached, value = flag.partition("=")
        if typed == name and (word := value if attached else following) and not word.startswith("-"):
            return word
    return None


def names_flag(flags: list[str], name: str) -> bool:
    """Whether the user typed it."""
    return any(flag.split("=")[0].replace("_", "-") == name for flag in flags)

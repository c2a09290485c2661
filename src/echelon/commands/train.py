"""`echelon train`: train a task, or resume its run."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from echelon.commands import INTERRUPTED, PREEMPTED
from echelon.commands.command import Command, TrainFlags, find, names_flag, place
from echelon.commands.lists import task_list
from echelon.config.checks import require, with_settings
from echelon.config.ranges import COUNT, SEEDS
from echelon.console.flags import flags_of, read, show_help, spans
from echelon.errors import UserError, require_package
from echelon.ranks import Ranks, join

if TYPE_CHECKING:
    from echelon.config import TrainConfig
    from echelon.training.callbacks import CheckpointCallback
    from echelon.training.resolve import Resolved

EVERYDAY = """
The most common settings; echelon train TASK --help lists all, with that task's defaults:

  --algo NAME                ppo, pbt, sapg or cpo (default: what was found best for TASK, else cpo)
  --preset {best,paper}      what to start from (default: best)
  --variant NAME ...         named changes of the preset (echelon variants lists them)
  --policies M               one leader and M-1 followers, or M members of a population (default: 6)
  --num-envs N               environments simulated side by side
  --iterations K             how long to train, or:
  --env-steps S              the same in environment steps, as in 1e6
  --until METRIC>=VALUE      stop earlier, as in return>=500
  --from RUN                 begin with the networks of another run
  --seed SEED                seed of all random numbers (default: 0)
  --device {auto,cpu,cuda}   where to train (default: auto)
  --env-arg NAME=VALUE ...   arguments for an environment that is not built in
  --out DIR                  run folder (default: runs/TASK-ALGO-sSEED, or with the variant for ALGO)

tasks:
"""


@dataclass(frozen=True)
class OnTask(Command):
    """A command that begins with a task and takes the flags of `echelon train`."""

    task: Annotated[tyro.conf.Positional[str], place("[TASK]")] = ""
    """What to train."""
    env: str | None = None
    """Instead of a task: gymnasium:, mjlab:, isaaclab:, maniskill: or playground:NAME, or mypackage.module:make."""
    train_flags: TrainFlags = ()

    def check(self) -> None:
        name = self.line.split()[1]
        if self.task and self.env:
            raise UserError(f"--env {self.env} is another environment than {self.task}; leave out one of them")
        if not self.task and not self.env:
            if self.train_flags:
                raise UserError(f"the task comes first, as in echelon {name} CartpoleSwingup {self.train_flags[0]}")
            raise UserError(f"{name} needs a task, as in echelon {name} Hopper; echelon {name} --help lists them")

    def resolve(self, ranks: Ranks) -> "Resolved":
        """The settings. Unless `--num-envs` is among the flags, the number of environments may be adapted."""
        from echelon.training.resolve import resolve

        config = configure(self.task or self.env or "", self.train_flags, command=self.line.split()[1])
        return resolve(config, fit_envs=not names_flag(self.train_flags, "--num-envs"), ranks=ranks)


@dataclass(frozen=True)
class Train(OnTask):
    """Train a task, or resume its run: the same command resumes where it stopped. With --resume the folder alone will
    do, and flags change the run's settings from here on, which is recorded. torchrun --nproc-per-node 8 -m echelon
    train TASK [flags] trains one run on eight GPUs."""

    help_of_task = True

    resume: str | None = None
    """Run folder to resume, instead of a task."""
    seeds: tuple[int, ...] = ()
    """How many seeds, 0 to N-1, or which, as in 3 5 8: side by side in one process, a run folder each."""
    evaluate_every: Annotated[int | None, COUNT] = None
    """Score all policies every K iterations, into evaluations.jsonl of the run."""
    film_every: Annotated[int | None, COUNT] = None
    """Film the leader every K iterations, into films/ of the run."""

    @classmethod
    def more_help(cls) -> str:
        return EVERYDAY + task_list()

    def check(self) -> None:
        if self.resume is None:
            super().check()
            if len(self.seeds) == 1:
                require("seeds", self.seeds[0], SEEDS)
            if self.seeds and names_flag(self.train_flags, "--seed"):
                raise UserError("--seed and --seeds were both given; leave one of them out")
            return
        if self.task:
            raise UserError(f"--resume takes the task from the run; leave out {self.task}")
        for flag in ("--out", "--from", "--start-from", "--variant", "--algo", "--seeds"):
            if names_flag(self.train_flags, flag) or (flag == "--seeds" and self.seeds):
                raise UserError(f"{flag} would be another run; leave it out, or start one without --resume")

    def run(self) -> int:
        ranks = join()
        resolved, callbacks = ranks.attempt(lambda: (self.settings(ranks), self.callbacks()))
        seeds = list(range(self.seeds[0])) if len(self.seeds) == 1 else list(self.seeds)

        from echelon.console.view import NullView, Preempted, choose_view
        from echelon.console.wording import duration
        from echelon.training.loop import train, train_seeds

        view, started = choose_view() if ranks.first else NullView(), time.monotonic()
        command = self.line if ranks.size == 1 else f"torchrun ... -m {self.line}"
        for note in resolved.notes if ranks.first else ():
            print(note)
        try:
            if seeds:
                folders = train_seeds(resolved, seeds, view, callbacks=callbacks)
            else:
                folders = [train(resolved, view, callbacks=callbacks, change=self.resume is not None)]
            code, said = 0, _ending([str(x.path) for x in folders], duration(time.monotonic() - started), command)
        except KeyboardInterrupt as interrupt:
            code = PREEMPTED if isinstance(interrupt, Preempted) else INTERRUPTED
            said = f"Stopped. The same command resumes from the last checkpoint, if there is one:  {command}"
        ranks.leave()
        if ranks.first:
            print(said)
        return code

    def settings(self, ranks: Ranks) -> "Resolved":
        """The settings of a new run, or with `--resume` the stored ones, changed by flags."""
        if self.resume is None:
            return self.resolve(ranks)
        from echelon.algorithms import with_algorithm
        from echelon.config import from_dict, to_dict
        from echelon.runs.folder import RunFolder
        from echelon.tasks import preset
        from echelon.training.resolve import resolve

        folder = RunFolder.open(self.resume)
        stored = folder.config
        start = from_dict(with_algorithm(preset(stored.source or stored.task), stored.algo), to_dict(stored))
        # A folder may be somebody else's: what reaches outside it is asked for on this command line, or not at all.
        start = replace(start, wandb="off")
        given = _given(start, self.train_flags, f"train --resume {folder.path}", "Resume a run, with changed settings.")
        resolved = resolve(replace(with_settings(start, given), out=str(folder.path)), ranks=ranks)
        if stored.wandb == "off" or "wandb" in given:
            return resolved
        note = f"this run was sent to Weights & Biases; it is not unless you add --wandb {stored.wandb}"
        return replace(resolved, notes=(*resolved.notes, note))

    def callbacks(self) -> "list[CheckpointCallback]":
        """What `--evaluate-every` and `--film-every` ask for."""
        found: list[CheckpointCallback] = []
        if self.evaluate_every is not None:
            from echelon.evaluation.evaluate import evaluate_every

            found.append(evaluate_every(self.evaluate_every))
        if self.film_every is not None:
            require_package("mujoco", "--film-every", "mujoco")
            from echelon.viewing.video import film_every

            found.append(film_every(self.film_every))
        return found


def _ending(paths: list[str], spent: str, command: str) -> str:
    """Where the runs are, and what to type next."""
    where = f"The runs are in {paths[0]} to {paths[-1]}" if len(paths) > 1 else f"The run is in {paths[0]}"
    first = shlex.quote(paths[0])
    return f"""
{where}, after {spent}.
  score it   echelon evaluate {first}
  watch it   echelon play {first}
  record it  echelon record {first}
  report it  echelon report {shlex.join(paths)} --open
  resume it  {command}  (the same command, with more --iterations or --env-steps)"""


def _given(start: "TrainConfig", flags: Sequence[str], command: str, description: str) -> dict[str, Any]:
    """What the flags say, by dotted name; or the help of all settings."""
    if {"-h", "--help"} & set(flags):
        show_help(start, f"echelon {command}", description)
    return read(start, flags, f"echelon {command}", also=flags_of(find(command.split()[0])))


def configure(
    task: str, flags: Sequence[str], variants: Sequence[str] = (), *, command: str = "train"
) -> "TrainConfig":
    """The task's preset, changed by `variants` (or those that `flags` name) and then by `flags`."""
    from echelon.algorithms import BUILT_IN, with_algorithm
    from echelon.algorithms.variants import apply_variants
    from echelon.tasks import TASKS, best_variants, preset

    start = preset(task)
    for span in spans([word for words in flags for word in words.split("=", 1)]):
        if span[:1] == ["--algo"] and len(span) == 2 and span[1] not in BUILT_IN:  # its settings are flags too
            start = with_algorithm(start, span[1])
    description = TASKS[task].description if task in TASKS else f"Train in {start.source}"
    description += ". More flags: --seeds, --evaluate-every, --film-every (echelon train --help)."
    given = _given(start, flags, f"{command} {task}", description)
    config = with_settings(start, given)
    if config.env_arg and config.source is None:
        raise UserError(f"--env-arg is for environments that are not built in; {task} has --env.NAME flags instead")
    named = variants or config.variant
    if config.preset == "best" and not named:
        # The paper's rule takes followers that are far from the leader for a policy that moved too far.
        config = with_settings(config, {"update.kl_rows": "own"} | given)
    names = named or best_variants(config, algo_chosen="algo" in given)
    if not names:
        return config
    # A variant may depend on what the flags say (the horizon, the number of policies), and still they win over it.
    varied = apply_variants(config, names)
    final = with_settings(varied, given)
    return replace(final, variant=varied.variant, preset="paper" if named else final.preset)

"""`echelon train`: train a task, or resume its run."""

import json
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from echelon.algorithms import IN_PRESET, find as find_algorithm, settings_class, with_algorithm
from echelon.algorithms.variants import VARIANTS, apply_variants
from echelon.commands import INTERRUPTED, PREEMPTED
from echelon.commands.command import Command, TrainFlags, find, names_flag, place
from echelon.commands.import_config import read as read_file
from echelon.commands.lists import task_list
from echelon.config import TrainConfig
from echelon.config.checks import from_dict, require, settings_of, spelling, to_dict, with_settings
from echelon.config.ranges import COUNT, NOT_NEGATIVE, SEEDS
from echelon.console.flags import flags_of, read, show_help, spans
from echelon.errors import UserError, is_installed, require_package
from echelon.ranks import Ranks, join
from echelon.runs.folder import RunFolder
from echelon.tasks import TASKS, best_variants, built_in, preset
from echelon.training.resolve import Resolved, resolve

if TYPE_CHECKING:
    from echelon.training.callbacks import CheckpointCallback

EVERYDAY = """
The most common settings; echelon train TASK --help lists all, with that task's defaults:

  --algo NAME                ppo, pbt, sapg, cpo or sac (default: what was found best for TASK, or ppo for your own)
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
  --config FILE              settings to start from, as in runs/a/config.json
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
    config: str | None = None
    """File of settings, YAML or JSON, in the form of a run's config.json; flags win over it."""
    train_flags: TrainFlags = ()

    def check(self) -> None:
        name = self.line.split()[1]
        if self.task and self.env:
            raise UserError(f"--env {self.env} is another environment than {self.task}; leave out one of them")
        if not self.task and not self.env and not self.config:
            if self.train_flags:
                raise UserError(f"the task comes first, as in echelon {name} CartpoleSwingup {self.train_flags[0]}")
            raise UserError(f"{name} needs a task, as in echelon {name} Hopper; echelon {name} --help lists them")
        super().check()

    def stored(self) -> tuple[str, dict[str, Any]]:
        """The task or environment, and the settings that --config has."""
        stored = _read_config(self.config) if self.config else {}
        task = self.task or self.env or stored.get("source") or stored.get("task") or ""
        if not isinstance(task, str) or not task:
            name = self.line.split()[1]
            told = f"{self.config} names no task; write one"
            raise UserError(f"{told}, as in echelon {name} Hopper --config {self.config}")
        return task, stored

    def chooses(self, *names: str, more: Sequence[str] = ()) -> bool:
        """Whether one of these settings is in the file, among the flags, or among `more` flags."""
        stored, flags = self.stored()[1], (*self.train_flags, *more)
        return any(name in stored or names_flag(flags, spelling(name)) for name in names)

    def resolve(self, ranks: Ranks) -> Resolved:
        """The settings. Unless their number is given, the number of environments may be adapted."""
        task, stored = self.stored()
        config = configure(task, self.train_flags, command=self.line.split()[1], stored=stored)
        resolved = resolve(config, fit_envs=not self.chooses("num_envs"), ranks=ranks)
        if self.chooses("algo", "variant") or resolved.config.source is None or resolved.config.algo != "ppo":
            return resolved
        note = "PPO, the default outside the built-in tasks; --algo cpo trains an ensemble, which may explore further"
        return replace(resolved, notes=(*resolved.notes, note))


@dataclass(frozen=True)
class Trains(Command):
    """A command that trains."""

    seeds: tuple[int, ...] = ()
    """How many seeds, 0 to N-1, or which, as in 3 5 8: side by side in one process, a run folder each."""
    evaluate_every: Annotated[int | None, NOT_NEGATIVE] = None
    """Score all policies every K iterations, into evaluations.jsonl; 0: never. Default on CUDA: in 1 % of the time."""
    film_every: Annotated[int | None, COUNT] = None
    """Film the leader every K iterations, into films/ of the run."""
    train_flags: TrainFlags = ()

    def check(self) -> None:
        super().check()
        if len(self.seeds) == 1:
            require("seeds", self.seeds[0], SEEDS)
        if self.seeds and names_flag(self.train_flags, "--seed"):
            raise UserError("--seed and --seeds were both given; leave one of them out")

    def settings(self, ranks: Ranks) -> Resolved:
        """What to train."""
        raise NotImplementedError

    def train(self, *, change: bool = False) -> int:
        """Train, and say what to type next; returns the exit code. `change` lets settings of a run change."""
        ranks = join()
        resolved = ranks.attempt(lambda: self.settings(ranks))
        callbacks = ranks.attempt(lambda: self.callbacks(resolved.config))
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
                folders = [train(resolved, view, callbacks=callbacks, change=change)]
            code, said = 0, _ending(folders, duration(time.monotonic() - started), command)
        except KeyboardInterrupt as interrupt:
            code = PREEMPTED if isinstance(interrupt, Preempted) else INTERRUPTED
            said = f"Stopped. The same command resumes from the last checkpoint, if there is one:  {command}"
        ranks.leave()
        if ranks.first:
            print(said)
        return code

    def callbacks(self, config: TrainConfig) -> "list[CheckpointCallback]":
        """What `--evaluate-every` and `--film-every` ask for."""
        found: list[CheckpointCallback] = []
        unasked = self.evaluate_every is None and config.device == "cuda" and built_in(config)
        if self.evaluate_every or unasked:
            from echelon.evaluation.evaluate import evaluate_every

            found.append(evaluate_every(self.evaluate_every))
        if self.film_every is not None:
            require_package("mujoco", "--film-every", "mujoco")
            from echelon.viewing.video import film_every

            found.append(film_every(self.film_every))
        return found


@dataclass(frozen=True)
class Train(Trains, OnTask):
    """Train a task, or resume its run: the same command resumes where it stopped. With --resume the folder alone will
    do, and flags change the run's settings from here on, which is recorded. torchrun --nproc-per-node 8 -m echelon
    train TASK [flags] trains one run on eight GPUs."""

    help_of_task = True
    refused = dict.fromkeys(
        ("--checkpoint", "--load-run", "--load-checkpoint"),
        "; --resume RUN continues a run, --from RUN begins another with its networks",
    )

    resume: str | None = None
    """Run folder to resume, instead of a task."""

    @classmethod
    def more_help(cls) -> str:
        return EVERYDAY + task_list()

    def check(self) -> None:
        if self.resume is None:
            super().check()
            return
        if given := self.task or self.env or self.config:
            raise UserError(f"--resume takes task and settings from the run; leave out {given}")
        for flag in ("--out", "--from", "--start-from", "--variant", "--preset", "--algo", "--seeds"):
            if names_flag(self.train_flags, flag) or (flag == "--seeds" and self.seeds):
                raise UserError(f"{flag} would be another run; leave it out, or start one without --resume")

    def run(self) -> int:
        return self.train(change=self.resume is not None)

    def settings(self, ranks: Ranks) -> Resolved:
        """The settings of a new run, or with `--resume` the stored ones, changed by flags."""
        if self.resume is None:
            return self.resolve(ranks)
        folder = RunFolder.open(self.resume)
        stored = folder.config
        # A folder is untrusted: what reaches outside it is asked for on this command line, or not at all.
        start = replace(in_classes(stored), wandb="off")
        about = "Resume a run, with changed settings."
        given = given_flags(start, self.train_flags, f"train --resume {folder.path}", about)
        require_read([start.algo], given)
        resolved = resolve(replace(with_settings(start, given), out=str(folder.path)), ranks=ranks)
        from echelon.runs import checkpoint  # with torch, which a wrong flag must not wait for

        if (found := checkpoint.find(folder, warn=lambda text: None)) and "trainer" in found.state:
            checkpoint.require_fit(found, start)
        if stored.wandb == "off" or "wandb" in given:
            return resolved
        note = f"this run was sent to Weights & Biases; it is not unless you add --wandb {stored.wandb}"
        return replace(resolved, notes=(*resolved.notes, note))


def in_classes(stored: TrainConfig) -> TrainConfig:
    """The settings of a stored run in the classes of its task, which may be code from elsewhere."""
    return from_dict(with_algorithm(preset(stored.source or stored.task), stored.algo), to_dict(stored))


def _ending(folders: list[RunFolder], spent: str, command: str) -> str:
    """Where the runs are, and what to type next."""
    paths = [str(folder.path) for folder in folders]
    where = f"The runs are in {paths[0]} to {paths[-1]}" if len(paths) > 1 else f"The run is in {paths[0]}"
    first = shlex.quote(paths[0])
    record = f"\n  record it  echelon record {first}" if folders[0].shown else ""
    watch = f"\n  watch it   echelon play {first}" if record and is_installed("mujoco.studio") else ""
    return f"""
{where}, after {spent}.
  score it   echelon evaluate {first}{watch}{record}
  report it  echelon report {shlex.join(paths)} --open
  resume it  {command}  (the same command, with more --iterations or --env-steps)"""


def _read_config(path: str) -> dict[str, Any]:
    """Settings of a file, or of a run's config.json, but for those that only its own start may decide."""
    data = json.loads(json.dumps(read_file(Path(path)), default=str))  # YAML has more types than settings have
    data = data["config"] if isinstance(data.get("config"), dict) else data
    return {name: value for name, value in data.items() if name not in ("out", "wandb")}


def given_flags(start: TrainConfig, flags: Sequence[str], command: str, description: str) -> dict[str, Any]:
    """What the flags say, by dotted name; or the help of all settings."""
    if {"-h", "--help"} & set(flags):
        show_help(start, f"echelon {command}", description)
    found = read(start, flags, f"echelon {command}", also=flags_of(find(command.split()[0])))
    if found.get("iterations") is not None and "env_steps" in found:
        raise UserError("--iterations and --env-steps were both given; leave one of them out")
    if "env_steps" in found:
        found["iterations"] = None  # those of a file or a run would win
    return found


def configure(
    task: str,
    flags: Sequence[str | float] = (),
    variants: Sequence[str] = (),
    *,
    command: str = "train",
    stored: Mapping[str, Any] | None = None,
    shared: bool = False,
) -> TrainConfig:
    """The settings with which `echelon train TASK FLAGS` begins: `configure("AllegroHand", ["--env-steps", "5e7"])`.

    They are the task's preset, changed by what was found best, by `variants` (or those that `flags` name), by `stored`
    settings of a file and by `flags`. If these are `shared` by several methods, whether one reads them is for the
    caller to check. `command` is named in messages.
    """
    flags = shlex.split(flags) if isinstance(flags, str) else [str(word) for word in flags]  # as typed from Python
    variants, stored = (variants,) if isinstance(variants, str) else variants, dict(stored or {})
    start = _in_its_class(preset(task), stored.get("algo"), flags)
    description = TASKS[task].description if task in TASKS else f"Train in {start.source}"
    description += ". More flags: --seeds, --evaluate-every, --film-every (echelon train --help)."
    typed = given_flags(start, flags, f"{command} {task}", description)
    written = _of_file(start, stored, typed.get("algo"))
    early, given = variants or written.get("variant", ()), written | typed
    late = [name for name in typed.get("variant", ()) if name not in early]
    config = with_settings(start, given)
    if config.env_arg and config.source is None:
        raise UserError(f"--env-arg is for environments that are not built in; {task} has --env.NAME flags instead")
    if typed.get("preset") == "best" and "preset" not in stored and _of_method([*early, *late]):
        raise UserError("variants and comparisons begin with the paper's settings; leave out --preset best")
    if (was := stored.get("preset")) and (asked := typed.get("preset", was)) != was:  # the file's settings would win
        raise UserError(f"the file has settings of --preset {was}; leave out --preset {asked}, or the file")
    config = _varied(config, given, early, late, typed)
    if not shared:
        require_read([config.algo], typed)
    return config


def _in_its_class(start: TrainConfig, stored: object, flags: Sequence[str]) -> TrainConfig:
    """A preset in the class of the algorithm that a file (`stored`) or the flags name, whose settings are flags too."""
    named = [stored] if isinstance(stored, str) else []
    spelled = spans([word for words in flags for word in words.split("=", 1)])
    named += [span[1] for span in spelled if span[:1] == ["--algo"] and len(span) == 2]
    for algo in named:
        if algo not in IN_PRESET:
            start = with_algorithm(start, algo)
    return start


def _of_file(start: TrainConfig, stored: Mapping[str, Any], algo: str | None) -> dict[str, Any]:
    """What a file says, by dotted name. If the flags choose another algorithm, the file's variants of its method and
    its policies are left out."""
    named = {name: value for name, value in stored.items() if name not in ("task", "source")}
    written = settings_of(from_dict(start, named))
    given = {name: written[name] for name in settings_of(named)}
    if algo is not None and stored.get("algo", algo) != algo:
        given["variant"] = tuple(name for name in written["variant"] if not _of_method([name]))
        if given.get("policies") == 1 or find_algorithm(algo).one_policy:
            given = {name: value for name, value in given.items() if name not in ("policies", "envs_per_policy")}
    return given


def _of_method(variants: Sequence[str]) -> list[str]:
    """Those that change more than the task."""
    return [name for name in variants if name not in VARIANTS or not VARIANTS[name].of_task]


def _varied(
    config: TrainConfig, given: dict[str, Any], early: Sequence[str], late: Sequence[str], typed: Iterable[str]
) -> TrainConfig:
    """The settings changed by variants, of which those of a method begin with the paper's settings, and the others with
    what was found best. What was `given` wins over `early` ones, and what was `typed` of it over `late` ones, which are
    flags themselves; of those that it undoes the name is left out."""
    best: tuple[str, ...] = ()
    if _of_method([*early, *late]):
        config = with_settings(config, {"preset": "paper"} | given)
    elif config.preset == "best":
        # The paper's rule takes followers that are far from the leader for a policy that moved too far.
        config = with_settings(config, {"update.kl_rows": "own"} | given)
        best = best_variants(config, algo_chosen="algo" in given)
    config, flagged = replace(config, variant=()), {name: given[name] for name in ("algo", *typed) if name in given}
    for names, wins in (((*best, *early), given), (late, flagged)):
        if names:  # a variant may depend on what the flags say (the horizon, the number of policies)
            varied = apply_variants(config, names)
            config = replace(with_settings(varied, wins), variant=config.variant + varied.variant)
            if config.algo != varied.algo:
                told = f"--variant {' '.join(names)} trains {varied.algo}, not {config.algo}"
                raise UserError(f"{told}; give --algo {varied.algo}, or leave the variant out")
    # One that flags have undone would be a name that is not true.
    kept = tuple(name for name in config.variant if name not in VARIANTS or VARIANTS[name].left_in(config))
    return replace(config, variant=kept)


def require_read(algos: Iterable[str], names: Iterable[str]) -> None:
    """Refuse settings that none of the algorithms reads."""
    algos = list(dict.fromkeys(algos))
    for name in names:
        if not any(reads(algo, name) for algo in algos):
            do = "does" if len(algos) == 1 else "do"
            raise UserError(f"{' and '.join(algos)} {do} not read {spelling(name)}; leave it out")


def reads(algo: str, name: str) -> bool:
    """Whether an algorithm reads a setting, by dotted name."""
    kind = settings_class(algo)
    return name.partition(".")[0] in kind.__dataclass_fields__ and not kind.ignores(name)

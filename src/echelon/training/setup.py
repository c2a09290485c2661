"""Everything before the first iteration: settings of torch, run folders, environments, the trainer, and its state.

A run starts from its newest valid checkpoint, with the networks of another run, or from scratch.
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from echelon.algorithms import find
from echelon.config import TaskConfig, TrainConfig
from echelon.config.checks import check, choose_device, require
from echelon.config.ranges import SEEDS
from echelon.console.view import View
from echelon.envs.contract import Adaptive, Env, MakeEnv, Stateful, is_shown, misfits
from echelon.envs.observed import observed
from echelon.envs.side_by_side import SideBySide
from echelon.envs.sources import source_of
from echelon.errors import UserError, first_line
from echelon.learning.plans import Plan
from echelon.ranks import ALONE, Ranks
from echelon.runs import checkpoint
from echelon.runs.changes import described
from echelon.runs.checkpoint import Checkpoint
from echelon.runs.folder import RunFolder
from echelon.runs.trained import Trained
from echelon.tasks import built_in, make, maker, several_seeds
from echelon.training.agreement import require_alike, require_seen
from echelon.training.off_policy import OffPolicyTrainer
from echelon.training.resolve import Resolved, explain_full_memory
from echelon.training.stacked import InTurn, StackedTrainer
from echelon.training.teacher import Taught
from echelon.training.trainer import Trainer


def start(
    resolved: Resolved, seeds: Sequence[int] | None, make_env: MakeEnv | None, view: View, change: bool
) -> tuple[Trainer | InTurn, list[RunFolder], list[float]]:
    """A trainer that is ready to iterate, and for each of its runs the folder and the seconds that earlier starts took.

    Without `seeds` it is the one run that the settings describe.
    """
    ranks, config, algorithm = resolved.ranks, resolved.config, find(resolved.config.algo)
    if make_env is not None and config.source is None:
        config = replace(config, source=source_of(make_env))
    configs = [config]
    if seeds is not None:
        _require_seeds(resolved, seeds)
        outs = [str(Path(config.out) / f"seed_{seed}") if config.out else None for seed in seeds]
        configs = [replace(config, seed=seed, out=out) for seed, out in zip(seeds, outs, strict=True)]
    set_up_torch(config)
    if ranks.size > 1:
        require_alike(ranks, config, resolved.device)
    ranks.connect(resolved.device)

    def build() -> Trainer | InTurn:
        whole, each = envs or _environments(resolved, configs, make_env)
        with explain_full_memory(config):
            if len(configs) > 1 and _stacks(config):
                return StackedTrainer(each, configs, resolved.plan, whole)
            runs = [make_trainer(env, one, resolved.plan) for env, one in zip(each, configs, strict=True)]
            return InTurn(runs) if len(runs) > 1 else runs[0]

    opened = partial(RunFolder.create_or_resume, colour=algorithm.colour, change=change)
    folders = ranks.broadcast(ranks.attempt(lambda: [opened(one) for one in configs] if ranks.first else []))
    if ranks.size > 1:
        require_seen(ranks, folders[0])
    with ExitStack() as undo:  # a start that fails leaves no run folder
        for folder in folders if ranks.first else ():
            undo.callback(folder.discard)
        # Rank 0 first: the others take over what its environment settles, and find its kernels compiled.
        envs = ranks.attempt(lambda: _environments(resolved, configs, make_env) if ranks.first else None)
        folders = ranks.broadcast([_settled(*pair) for pair in zip(folders, envs[1], strict=True)] if envs else folders)
        configs = [folder.config for folder in folders]
        trainer = ranks.attempt(build)
        common = _common_iteration(folders, view) if len(folders) > 1 else None
        seconds = [_resume(run, folder, view, common) for run, folder in zip(trainer.runs, folders, strict=True)]
        trainer.take_in()
        for run, folder in zip(trainer.runs, folders, strict=True):
            _take_changes(run, folder, view)
        undo.pop_all()
    if common is not None:
        folders = [_without_later(folder, common) for folder in folders]
    return trainer, folders, seconds


def make_trainer(env: Env, config: TrainConfig, plan: Plan | None = None, ranks: Ranks = ALONE) -> Trainer:
    """The trainer of one run, of the kind that its algorithm needs."""
    return (OffPolicyTrainer if find(config.algo).off_policy else Trainer)(env, config, plan, ranks=ranks)


def _stacks(config: TrainConfig) -> bool:
    """Whether several seeds train as one: not those of a selection, which decides on the host between iterations."""
    algorithm = find(config.algo)
    return algorithm.selection is None and algorithm.off_policy is None


def _require_seeds(resolved: Resolved, seeds: Sequence[int]) -> None:
    """Raise a `UserError` for what several seeds in one process cannot have."""
    config = resolved.config
    require("seeds", len(seeds), SEEDS)
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds names a seed twice: {' '.join(map(str, seeds))}")
    for seed in seeds:
        check(replace(config, seed=seed))
    if resolved.ranks.size > 1:
        raise UserError("--seeds trains in one process, so not under torchrun; give each process a --seed of its own")


def set_up_torch(config: TrainConfig) -> None:
    """Torch's settings for the whole process."""
    torch.set_num_threads(config.threads)
    exact = config.precision == "fp32" or choose_device(config.device).type == "cpu"
    torch.set_float32_matmul_precision("highest" if exact else "high")  # high is TF32


def _environments(
    resolved: Resolved, configs: Sequence[TrainConfig], make_env: MakeEnv | None
) -> tuple[Env, Sequence[Env]]:
    """This rank's environments: those of all runs as one, and those of each."""
    config, count, device = configs[0], resolved.plan.layout.num_envs, resolved.device
    seeds = [resolved.ranks.seed(one.seed) for one in configs]
    as_it_is = find(config.algo).teacher(config) is None and not config.obs and config.history == 1
    with explain_full_memory(config):
        if make_env is None and len(seeds) > 1 and _stacks(config) and several_seeds(config) and as_it_is:
            task: Any = make(config.task, config.env, len(seeds) * count, device, seeds, spread_clocks=True)
            return task, task.slices()
        one = make_env or maker(config, spread_clocks=True)
        envs = [one(count, device, seed) for seed in seeds]
        for problem in (problem for env in envs for problem in misfits(env, count, device)):
            raise UserError(f"the environment does not fit: {problem}")
        envs = envs if as_it_is else [as_seen(env, config) for env in envs]
        return SideBySide(envs) if len(envs) > 1 else envs[0], envs


def as_seen(env: Env, config: TrainConfig) -> Env:
    """The environment as the policy sees it, with its teacher if it has one."""
    if teacher := find(config.algo).teacher(config):
        if not (place := Path(teacher.run or "")).is_dir():
            raise UserError(f"the teacher's run {place} is not there; --teacher.run RUN says where it is")
        shown = Trained.load(place, teacher.checkpoint or "newest")
        env = Taught(env, shown, teacher.fade * config.update.horizon)
    return observed(env, config.obs, config.history)


def _settled(folder: RunFolder, env: Env) -> RunFolder:
    """Store the settings that the environment chose where they were left open, and whether it can be shown."""
    settled = getattr(env, "config", None)
    chosen = isinstance(settled, TaskConfig) and settled != folder.config.env
    folder = folder.with_config(replace(folder.config, env=settled)) if chosen else folder
    return folder if built_in(folder.config) else folder.with_view(is_shown(env))


def _take_changes(trainer: Trainer, folder: RunFolder, view: View) -> None:
    """Report settings that were changed on resume. A new learning rate is written into the optimizer, because the
    checkpoint has the one that the KL rule had reached, and a new sigma into the networks, which act next."""
    ranks = trainer.ranks
    changes = ranks.attempt(lambda: folder.take_changes(trainer.iteration) if ranks.first else [])
    for changed in ranks.broadcast(changes):
        if changed["iteration"] >= trainer.iteration:
            if changed["setting"] == "update.learning_rate" and not trainer.algorithm.off_policy:
                trainer.update.optimizer.rate.fill_(trainer.config.update.learning_rate)
            if changed["setting"].startswith(("noise.", "model.max_sigma")):
                trainer.hold_sigma()
            view.message(f"changed: {described(changed)}")


def _common_iteration(folders: Sequence[RunFolder], view: View) -> int | None:
    """The newest iteration that every seed has a valid checkpoint of; 0 if some have none yet, None if none was ever
    saved.

    A kill while the seeds are saved one after another leaves some of them one checkpoint ahead, and no more. All have
    logged an iteration by then, which a seed that was added has not.
    """
    saved = [checkpoint.saved_iterations(folder) for folder in folders]
    if not any(saved):
        return None

    def valid(iteration: int) -> bool:
        return all(checkpoint.find(folder, iteration, view.message) for folder in folders)

    common = next(filter(valid, sorted(set.intersection(*map(set, saved)), reverse=True)), 0)
    instead = "train those together that are equally far, or each alone with --seed and --out"
    if common == 0 and all(saved):  # as where each keeps one only; to start over would lose them
        raise UserError(f"the runs {folders[0].path} to {folders[-1].path} share no whole checkpoint; {instead}")
    logged = [folder.has_metrics for folder in folders]
    empty = (folder for folder, *has in zip(folders, saved, logged, strict=True) if not any(has))
    new = next(empty, None) if any(logged) else None  # none is logged where all were starting over
    for folder, iterations in zip(folders, saved, strict=True):
        if sum(iteration > common for iteration in iterations) > (0 if new else 1):
            behind = new or min(zip(saved, folders, strict=True), key=lambda pair: max(pair[0], default=0))[1]
            apart = f"{folder.path} is ahead of {behind.path}, so they cannot continue side by side"
            raise UserError(f"{apart}; {instead}")
    return common


def _without_later(folder: RunFolder, common: int) -> RunFolder:
    """Remove what a seed had saved after the common iteration: until all are as far again, it would be the seed's
    newest checkpoint, and a kill would leave that seed ahead."""
    if common == 0:
        folder.note_saved(False)
        folder = replace(folder, before=None)  # it says that there was a checkpoint
    checkpoint.remove_after(folder, common)
    return folder


def _resume(trainer: Trainer, folder: RunFolder, view: View, iteration: int | None) -> float:
    """Load a run's newest checkpoint, or that of an iteration, where 0 starts over; seconds that it has taken so far.

    Rank 0 chooses. What is learned is then the same on all ranks to the bit, whatever machine each is on.
    """
    ranks = trainer.ranks
    found = ranks.attempt(lambda: _find(trainer, folder, view, iteration) if ranks.first else None)
    chosen = ranks.broadcast(None if found is None else found.iteration)
    seconds = ranks.attempt(lambda: _load(trainer, folder, found, chosen, view))
    trainer.sync_learned()
    return seconds


def _find(trainer: Trainer, folder: RunFolder, view: View, iteration: int | None) -> Checkpoint | None:
    checkpoint.tidy(folder.checkpoints)  # a run that is done saves no more, which would tidy up too
    saved = checkpoint.saved_iterations(folder)
    if iteration == 0 and saved:
        return None
    found = checkpoint.load(folder, iteration) if iteration else checkpoint.find(folder, "newest", view.message)
    if found is None:  # a fresh start would drop what the run has logged
        if saved:
            raise UserError(f"every checkpoint of {folder.path} is damaged; restore one, or start again with --out")
        if folder.lost_checkpoints:
            lost = f"{folder.path} has logged iterations but no checkpoint is left, and training again would overwrite"
            raise UserError(f"{lost} them; put its checkpoints back, or choose another folder with --out")
        return None
    if found.iteration > (asked := trainer.config.num_iterations):
        beyond = f"{folder.path} is at iteration {found.iteration} already, beyond the {asked} that were asked for"
        raise UserError(f"{beyond}; ask for more, or choose another folder with --out")
    here = trainer.env.device.type
    if (there := found.state.get("device", here)) != here:  # engines and random numbers differ
        raise UserError(f"{folder.path} was trained on {there} and cannot continue on {here}; use --device {there}")
    return found


def _load(trainer: Trainer, folder: RunFolder, found: Checkpoint | None, chosen: int | None, view: View) -> float:
    if chosen is None:
        if run := trainer.config.start_from:  # a warm start
            found = checkpoint.load(RunFolder.open(run), "newest")
            try:
                trainer.model.load_state_dict(found.state["trainer"]["model"])
            except RuntimeError:
                needs = "it needs the same observations, actions, --model, --policies and kind of algorithm"
                other = f"the networks of {run} have other sizes, so they cannot be started from"
                raise UserError(f"{other}; {needs}") from None
            trainer.hold_sigma()
            view.message(f"started from the networks of {run} after iteration {found.iteration}")
        return 0.0
    found, size = found or checkpoint.load(folder, chosen), trainer.ranks.size
    new_episodes = "so new episodes start: learning continues, but not to the bit"
    try:
        state = found.state["trainer"]
        trainer.load_learned(state)
        if found.ranks == size:
            trainer.load_own_state(found.of_rank(trainer.ranks.rank))
            lacks_state = not isinstance(trainer.env, Stateful) or not state["env"]
            note = f"the environment saves no state (state_dict), {new_episodes}" if lacks_state else ""
        else:  # which divides the environments differently; what they share, such as a curriculum, is kept
            if isinstance(trainer.env, Adaptive) and state["env"]:
                trainer.env.adopt(state["env"], fixed=False)
            trainer.collector.reset()
            before, now = ("one process" if count == 1 else f"{count} ranks" for count in (found.ranks, size))
            note = f"{before} saved it and {now} will train it now, {new_episodes}"
        if (clock := getattr(trainer.env, "teacher_clock", None)) is not None:
            clock.fill_(trainer.iteration * trainer.config.update.horizon)
        seconds = float(found.state["seconds"])
    except UserError:
        raise
    except Exception as error:  # the file is untrusted
        unfit = f"checkpoint {found.path} does not fit this run ({first_line(error)})"
        cause = "it is of another task or network, or no version of Echelon wrote it"
        raise UserError(f"{unfit}: {cause}; remove it, or choose another folder with --out") from None
    if trainer.iteration != found.iteration or not 0 <= seconds < math.inf:
        raise UserError(f"checkpoint {found.path} contradicts itself; remove it, or choose another folder with --out")
    view.message(f"resumed {folder.path} after iteration {trainer.iteration}")
    for text in (note, trainer.missing()):
        if text:
            view.message(text)
    return seconds

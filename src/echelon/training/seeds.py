"""Several seeds of one run in one process: each has the folder, metrics and checkpoints of a run by itself.

The loop is that of `loop.py`, once for all seeds: iterate, then log and save each.
"""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from echelon.algorithms import find
from echelon.config import TrainConfig
from echelon.config.checks import check_ranges
from echelon.config.ranges import SEEDS, require
from echelon.console.interrupt import Interrupt, Preempted
from echelon.console.view import View, default_view
from echelon.envs.contract import Env, MakeEnv
from echelon.envs.side_by_side import SideBySide
from echelon.envs.sources import source_of
from echelon.errors import UserError
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.tasks import make, maker, several_seeds
from echelon.training.loop import set_up_torch
from echelon.training.memory import explain_full_memory
from echelon.training.record import Record, record_faults
from echelon.training.resolve import Resolved, resolve
from echelon.training.resuming import resume, warm_start
from echelon.training.session import Session, say_what_is_missing, with_env_settings
from echelon.training.soundness import require_finite
from echelon.training.stacked import StackedTrainer, require_no_selection
from echelon.training.trainer import Iteration, Trainer


def train_seeds(
    config: TrainConfig | Resolved, seeds: Sequence[int], view: View | None = None, make_env: MakeEnv | None = None
) -> list[RunFolder]:
    """Train as `config` says with each of several seeds, side by side; the folder of each seed's run.

    `num_envs` are those of a seed. With `out`, the folders are `seed_3` and so on inside it; else each is named as the
    run of that seed alone would be. The same call resumes all of them where they stopped together.
    """
    view = view or default_view()
    resolved = config if isinstance(config, Resolved) else resolve(config)
    config = resolved.config
    _require_stackable(config, seeds)
    if make_env is not None and config.source is None:
        config = replace(config, source=source_of(make_env))
    set_up_torch(config)
    colour = find(config.algo).colour
    folders = [RunFolder.create_or_resume(of_seed(config, seed), colour) for seed in seeds]
    everything = replace(config, num_envs=len(seeds) * config.num_envs)
    with explain_full_memory(everything):
        whole, envs = _environments(config, seeds, make_env, resolved.device)
        for index, env in enumerate(envs):
            _, folders[index] = with_env_settings(folders[index].config, folders[index], env)
        trainer = StackedTrainer(envs, folders[0].config, seeds, resolved.plan, whole)
    for run, folder in zip(trainer.runs, folders, strict=True):
        run.config = folder.config  # with the seed's own folder
    at = _common_iteration(folders, view)
    pairs = list(zip(trainer.runs, folders, strict=True))
    if at is None and any(checkpoint.saved_iterations(folder) for folder in folders):
        before = [_start_over(run, view) for run in trainer.runs]
    else:
        before = [resume(run, folder, view, at) for run, folder in pairs]
    trainer.take_in()
    view.start(config, folders[0], config.num_iterations, trainer.iteration)
    view.message(f"{len(seeds)} seeds side by side, in {folders[0].path} to {folders[-1].path}; means of all are shown")
    try:
        with ExitStack() as stack, Interrupt() as interrupt:
            runs = [_Seed(*one, view, stack) for one in zip(trainer.runs, folders, before, strict=True)]
            while trainer.iteration < config.num_iterations:
                with explain_full_memory(everything):
                    results = trainer.iterate_each()
                metrics = [one.log_iteration(result) for one, result in zip(runs, results, strict=True)]
                view.update(_shown(metrics))
                if trainer.iteration == runs[0].session.first:
                    say_what_is_missing(trainer, view)
                stop = interrupt.asked or view.closed
                last = stop or trainer.iteration == config.num_iterations
                due = last or trainer.iteration % config.checkpoint_every == 0
                trainer.hand_out()
                for one, result in zip(runs, results, strict=True):
                    one.look(result, last)
                for one, result in zip(runs, results, strict=True) if due else ():
                    one.session.save(one.trainer.score(result.metrics))
                if last:
                    view.message(f"where the time went:\n{trainer.timers.table()}")
                if stop:
                    view.message(f"interrupted: iteration {trainer.iteration} of every seed is saved")
                    raise Preempted if interrupt.requeue else KeyboardInterrupt
    finally:
        view.stop()
    return folders


def _environments(
    config: TrainConfig, seeds: Sequence[int], make_env: MakeEnv | None, device: torch.device
) -> tuple[Env, Sequence[Env]]:
    """All environments as one, and those of each seed."""
    one = make_env or maker(config, spread_clocks=True)
    if make_env is None and several_seeds(config) and len(seeds) > 1:
        from echelon.tasks.seed_slices import seed_slices  # with MuJoCo

        task: Any = make(config.task, config.env, len(seeds) * config.num_envs, device, seeds, spread_clocks=True)
        return task, seed_slices(task)
    envs = [one(config.num_envs, device, seed) for seed in seeds]
    return SideBySide(envs), envs


def of_seed(config: TrainConfig, seed: int) -> TrainConfig:
    """The settings of one seed's run."""
    return replace(config, seed=seed, out=str(Path(config.out) / f"seed_{seed}") if config.out else None)


class _Seed:
    """One seed's run in its folder."""

    def __init__(
        self, trainer: Trainer, folder: RunFolder, seconds_before: float, view: View, stack: ExitStack
    ) -> None:
        self.trainer, self.folder, self.view = trainer, folder, view
        self.record = stack.enter_context(Record(trainer, folder, self.say))
        self.session = Session(trainer, folder, seconds_before, self.record.files)
        self._metrics: dict[str, float] = {}

    def say(self, text: str) -> None:
        self.view.message(f"seed {self.folder.config.seed}: {text}")

    def log_iteration(self, result: Iteration) -> dict[str, float]:
        trainer = self.trainer
        self._metrics = self.session.clock() | result.metrics | trainer.timers.metrics()
        self.record.write_metrics(self._metrics)
        return self._metrics

    def look(self, result: Iteration, last: bool) -> None:
        """Check the iteration, and log what it measured."""
        require_finite(self.trainer, self._metrics, self.folder)
        self.session.require_folder()
        self.record.write_events(result, self.session.env_steps)
        self.record.warn(self._metrics, last)
        record_faults(self.trainer, self._metrics, self.record)


def _require_stackable(config: TrainConfig, seeds: Sequence[int]) -> None:
    """Raise a `UserError` for what several seeds in one process cannot have."""
    require("seeds", len(seeds), SEEDS)
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds names a seed twice: {' '.join(map(str, seeds))}")
    for seed in seeds:
        check_ranges(replace(config, seed=seed))
    require_no_selection(config)
    if config.until is not None:
        raise UserError("--until stops one run, and seeds that train side by side end together; leave one of both out")
    if config.wandb != "off":
        raise UserError("--wandb takes one run of a process; leave it out, or train the seeds one after another")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("--seeds trains in one process, so not under torchrun; give each process a --seed of its own")


def _common_iteration(folders: Sequence[RunFolder], view: View) -> int | None:
    """The newest iteration that every seed has a whole checkpoint of; None where training starts from nothing.

    A kill while the seeds are saved one after another leaves some of them one checkpoint ahead, and no more.
    """
    saved = [checkpoint.saved_iterations(folder) for folder in folders]
    common = [i for i in sorted(set.intersection(*map(set, saved)), reverse=True) if _whole(folders, i, view)]
    at = common[0] if common else None
    for folder, iterations in zip(folders, saved, strict=True):
        if sum(at is None or i > at for i in iterations) > 1:
            behind = min(zip(saved, folders, strict=True), key=lambda pair: max(pair[0], default=0))[1]
            raise UserError(
                f"{folder.path} is ahead of {behind.path}, so they cannot go on side by side; train each alone, with "
                "--seed and --out, or start anew with another --out"
            )
    return at


def _whole(folders: Sequence[RunFolder], iteration: int, view: View) -> bool:
    """Whether every seed's checkpoint of an iteration can be used."""
    try:
        for folder in folders:
            checkpoint.load(folder, iteration)
    except UserError as error:
        view.message(f"iteration {iteration} was skipped: {error}")
        return False
    return True


def _start_over(run: Trainer, view: View) -> float:
    """Start from scratch, because no iteration was saved for every seed."""
    if run.config.start_from:
        warm_start(run, run.config.start_from, view)
    return 0.0


def _shown(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metrics to show: the mean over seeds, and their rates summed."""
    result: dict[str, float] = {}
    for name in metrics[0]:
        known = [one[name] for one in metrics if math.isfinite(one[name])]
        mean = sum(known) / len(known) if known else math.nan
        result[name] = mean * len(metrics) if name.startswith("fps/") else mean
    return result

"""Everything before the first iteration: settings of torch, run folders, environments, the trainer, and its state."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from echelon.algorithms import find
from echelon.config import TaskConfig, TrainConfig
from echelon.config.checks import check, choose_device, require
from echelon.config.ranges import SEEDS
from echelon.console.view import View
from echelon.envs.contract import Env, MakeEnv
from echelon.envs.side_by_side import SideBySide
from echelon.envs.sources import source_of
from echelon.errors import UserError
from echelon.runs.changes import described
from echelon.runs.folder import RunFolder
from echelon.tasks import make, maker, several_seeds
from echelon.training.agreement import require_alike, share_folder
from echelon.training.memory import explain_full_memory
from echelon.training.resolve import Resolved
from echelon.training.resuming import resume_all
from echelon.training.stacked import StackedTrainer, require_no_selection
from echelon.training.trainer import Trainer


def require_stackable(resolved: Resolved, seeds: Sequence[int]) -> None:
    """Raise a `UserError` for what several seeds in one process cannot have."""
    require("seeds", len(seeds), SEEDS)
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds names a seed twice: {' '.join(map(str, seeds))}")
    for seed in seeds:
        check(replace(resolved.config, seed=seed))
    require_no_selection(resolved.config)
    if resolved.ranks.size > 1:
        raise UserError("--seeds trains in one process, so not under torchrun; give each process a --seed of its own")


def start(
    resolved: Resolved, seeds: Sequence[int] | None, make_env: MakeEnv | None, view: View, change: bool
) -> tuple[Trainer, list[RunFolder], list[float]]:
    """A trainer that is ready to iterate, and for each of its runs the folder and the seconds that earlier starts took.

    Without `seeds` it is the one run that the settings describe.
    """
    ranks, config = resolved.ranks, resolved.config
    if make_env is not None and config.source is None:
        config = replace(config, source=source_of(make_env))
    set_up_torch(config)
    require_alike(ranks, config, resolved.device)
    ranks.connect(resolved.device)
    if change and find(config.algo).selection is not None:
        raise UserError("settings of a population cannot be changed in its run: members have values of their own")
    configs = [config] if seeds is None else [_of_seed(config, seed) for seed in seeds]
    colour = find(config.algo).colour
    folders = [share_folder(ranks, one, colour, change=change) for one in configs]
    # Rank 0 first: the others take over what its environment settles, and find its kernels compiled.
    envs = ranks.attempt(lambda: _environments(resolved, configs, make_env) if ranks.first else None)
    folders = ranks.broadcast(_with_env_settings(folders, envs[1]) if envs else folders)
    configs = [folder.config for folder in folders]
    whole, each = ranks.attempt(lambda: envs or _environments(resolved, configs, make_env))
    trainer = ranks.attempt(lambda: _trainer(whole, each, configs, resolved))
    seconds = resume_all(trainer, folders, view)
    for run, folder in zip(trainer.runs, folders, strict=True):
        _take_changes(run, folder, view)
    return trainer, folders, seconds


def set_up_torch(config: TrainConfig) -> None:
    """Torch's settings for the whole process."""
    on_cpu = choose_device(config.device).type == "cpu"
    torch.set_num_threads(config.threads)
    exact = config.precision == "fp32" or on_cpu
    torch.set_float32_matmul_precision("highest" if exact else "high")  # high is TF32


def _of_seed(config: TrainConfig, seed: int) -> TrainConfig:
    """The settings of one seed's run."""
    return replace(config, seed=seed, out=str(Path(config.out) / f"seed_{seed}") if config.out else None)


def _environments(
    resolved: Resolved, configs: Sequence[TrainConfig], make_env: MakeEnv | None
) -> tuple[Env, Sequence[Env]]:
    """This rank's environments: those of all runs as one, and those of each."""
    config, count, device = configs[0], resolved.plan.layout.num_envs, resolved.device
    seeds = [resolved.ranks.seed(one.seed) for one in configs]
    with explain_full_memory(config):
        if make_env is None and len(seeds) > 1 and several_seeds(config):
            from echelon.tasks.seed_slices import seed_slices  # with MuJoCo

            task: Any = make(config.task, config.env, len(seeds) * count, device, seeds, spread_clocks=True)
            return task, seed_slices(task)
        one = make_env or maker(config, spread_clocks=True)
        envs = [one(count, device, seed) for seed in seeds]
        return SideBySide(envs) if len(envs) > 1 else envs[0], envs


def _with_env_settings(folders: Sequence[RunFolder], envs: Sequence[Env]) -> list[RunFolder]:
    """Store the settings that the environments chose where they were left open."""
    found: list[RunFolder] = []
    for folder, env in zip(folders, envs, strict=True):
        settled = getattr(env, "config", None)
        if isinstance(settled, TaskConfig) and settled != folder.config.env:
            folder = folder.with_config(replace(folder.config, env=settled))
        found.append(folder)
    return found


def _trainer(whole: Env, envs: Sequence[Env], configs: Sequence[TrainConfig], resolved: Resolved) -> Trainer:
    with explain_full_memory(configs[0]):
        if len(configs) == 1:
            return Trainer(whole, configs[0], resolved.plan)
        return StackedTrainer(envs, configs, resolved.plan, whole)


def _take_changes(trainer: Trainer, folder: RunFolder, view: View) -> None:
    """Report settings that were changed on resume. A new learning rate is written into the optimizer, because the
    checkpoint has the one that the KL rule had reached."""
    ranks = trainer.ranks
    changes = ranks.attempt(lambda: folder.take_changes(trainer.iteration) if ranks.first else [])
    for changed in ranks.broadcast(changes):
        if changed["iteration"] < trainer.iteration:
            continue
        if changed["setting"] == "update.learning_rate":
            trainer.update.optimizer.rate.fill_(trainer.config.update.learning_rate)
        view.message(f"changed: {described(changed)}")

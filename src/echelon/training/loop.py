"""The loop: iterate, log, save."""

import dataclasses
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import partial

import torch

from echelon.algorithms import find
from echelon.config import TrainConfig
from echelon.config.checks import choose_device
from echelon.console.interrupt import Interrupt, Preempted
from echelon.console.view import NullView, View, default_view
from echelon.envs.contract import Env, MakeEnv
from echelon.envs.sources import source_of
from echelon.errors import UserError
from echelon.ranks.joining import join
from echelon.runs.changes import described
from echelon.runs.folder import RunFolder
from echelon.tasks import maker
from echelon.training.agreement import require_alike, share_folder
from echelon.training.callbacks import Callback, Looking, ask, look, until
from echelon.training.memory import explain_full_memory
from echelon.training.record import NoRecord, Record, record_faults
from echelon.training.resolve import Resolved, resolve
from echelon.training.resuming import resume
from echelon.training.session import Session, say_what_is_missing, with_env_settings
from echelon.training.soundness import diverged, require_finite
from echelon.training.trainer import Iteration, Trainer


def train(
    config: TrainConfig | Resolved,
    view: View | None = None,
    make_env: MakeEnv | None = None,
    callbacks: Callback | Looking | Sequence[Callback | Looking] = (),
    *,
    change: bool = False,
) -> RunFolder:
    """Train as `config` says, in its run folder; a folder that exists is resumed where it stopped.

    Progress is shown in a notebook or on a terminal; `view=NullView()` shows nothing. `callbacks` are asked after every
    iteration (`echelon.training.callbacks`); evaluations and films are callbacks, too.

    With `change`, a stored run goes on with settings that differ from its own, as far as they can; what changed is
    written down.

    `make_env` builds the environment; without it, it is the task of that name. Give a config for an environment of
    your own a `task` name of your own.

    Processes that torchrun starts train one run together, each with its share of the environments.
    """
    if not isinstance(config, TrainConfig | Resolved):
        raise UserError(f'train takes settings, as in train(preset("Hopper")), not {config!r}')
    if not isinstance(callbacks, Sequence):
        callbacks = (callbacks,)
    if not isinstance(config, Resolved):
        ranks, given = join(), config
        config = ranks.attempt(lambda: resolve(given, ranks=ranks))
    ranks = config.ranks
    view = (view or default_view()) if ranks.first else NullView()
    try:
        return _train(config, view, make_env, callbacks, change)
    except UserError as error:
        told = ranks.explained(error)
        if told is error:
            raise
        raise told from None


def _train(
    resolved: Resolved,
    view: View,
    make_env: MakeEnv | None,
    callbacks: Sequence[Callback | Looking],
    change: bool,
) -> RunFolder:
    ranks, config = resolved.ranks, resolved.config
    if make_env is not None and config.source is None:
        config = dataclasses.replace(config, source=source_of(make_env))
    set_up_torch(config)
    require_alike(ranks, config, resolved.device)
    ranks.connect(resolved.device)
    if change and find(config.algo).selection is not None:
        raise UserError("settings of a population cannot be changed in its run: members have values of their own")
    folder = share_folder(ranks, config, find(config.algo).colour, change=change)
    looking = [one for one in callbacks if isinstance(one, Looking)]
    asked = [one for one in callbacks if not isinstance(one, Looking)]
    asked += [until(config.until)] if config.until else []
    # Rank 0 first: the others take over what its environment settles, and find its kernels compiled.
    env = ranks.attempt(lambda: _build(resolved, config, make_env) if ranks.first else None)
    config, folder = ranks.broadcast(with_env_settings(config, folder, env))
    env = ranks.attempt(lambda: env or _build(resolved, config, make_env))
    trainer = ranks.attempt(lambda: _prepare(env, config, resolved))
    seconds_before = resume(trainer, folder, view)
    _take_changes(trainer, folder, view)
    view.start(config, folder, config.num_iterations, trainer.iteration)
    if ranks.size > 1:
        view.message(f"{ranks.size} ranks, each with {env.num_envs} of the environments")
    try:
        record = ranks.attempt(lambda: Record(trainer, folder, view.message) if ranks.first else NoRecord())
        with record, Interrupt() as interrupt:
            session = Session(trainer, folder, seconds_before, record.files)
            wish, figures = Wish.GO_ON, dict[str, float]()
            while trainer.iteration < config.num_iterations and wish == Wish.GO_ON:
                try:
                    with explain_full_memory(config):
                        result = trainer.iterate()
                except FloatingPointError as error:
                    raise diverged(trainer, str(error), folder) from None
                metrics = session.clock() | result.metrics | trainer.timers.metrics() | figures
                ranks.agree(partial(_log, session, metrics, record, view))
                require_finite(trainer, metrics, folder)
                # Of all ranks' wishes the strongest counts, so that all leave together.
                wish = ranks.agree(partial(_ask, session, metrics, result, record, view, asked, interrupt))
                last = wish != Wish.GO_ON or trainer.iteration == config.num_iterations
                record.warn(metrics, last)
                record_faults(trainer, metrics, record)
                due = [one for one in looking if wish < Wish.STOP and (last or trainer.iteration % one.every == 0)]
                if last or due or trainer.iteration % config.checkpoint_every == 0:
                    session.save(trainer.score(result.metrics))
                if due and ranks.first:
                    with session.paused():
                        figures |= look(due, folder, make_env, view)
                if last:
                    view.message(f"where the time went:\n{trainer.timers.table()}")
                if wish >= Wish.STOP:
                    view.message(f"interrupted: iteration {trainer.iteration} is saved in {folder.path}")
                    raise KeyboardInterrupt if wish == Wish.STOP else Preempted
                if wish == Wish.ENOUGH:
                    view.message(f"stopped after iteration {trainer.iteration}: {session.reason}")
    finally:
        view.stop()
    return folder


def _build(resolved: Resolved, config: TrainConfig, make_env: MakeEnv | None) -> Env:
    """This rank's environments."""
    make_env = make_env or maker(config, spread_clocks=True)
    count = resolved.plan.layout.num_envs
    with explain_full_memory(config):
        return make_env(count, resolved.device, resolved.ranks.seed(config.seed))


def _prepare(env: Env, config: TrainConfig, resolved: Resolved) -> Trainer:
    with explain_full_memory(config):
        return Trainer(env, config, resolved.plan)


class Wish(IntEnum):
    """How to go on after an iteration. Ranks may disagree: the highest value wins."""

    GO_ON = 0
    ENOUGH = 1
    STOP = 2
    REQUEUE = 3


def _log(session: Session, metrics: Mapping[str, float], record: NoRecord, view: View) -> int:
    record.write_metrics(metrics)
    view.update(metrics)
    if session.trainer.iteration == session.first:
        say_what_is_missing(session.trainer, view)
    return 0


def _ask(
    session: Session,
    metrics: Mapping[str, float],
    result: Iteration,
    record: NoRecord,
    view: View,
    callbacks: Sequence[Callback],
    interrupt: Interrupt,
) -> Wish:
    """Log what an iteration did, and decide how to go on. Only rank 0 calls the callbacks."""
    if session.trainer.ranks.first:
        session.require_folder()  # before anything is written into it
    record.write_events(result, session.env_steps)
    # Looked at once: one that comes later is for the next iteration.
    stop = interrupt.asked or view.closed
    enough = ask(callbacks, metrics, view.message) if session.trainer.ranks.first else None
    if stop:
        return Wish.REQUEUE if interrupt.requeue else Wish.STOP
    if enough is None:
        return Wish.GO_ON
    session.reason = enough.reason
    return Wish.ENOUGH


def set_up_torch(config: TrainConfig) -> None:
    """Torch's settings for the whole process."""
    on_cpu = choose_device(config.device).type == "cpu"
    torch.set_num_threads(config.threads)
    exact = config.precision == "fp32" or on_cpu
    torch.set_float32_matmul_precision("highest" if exact else "high")  # high is TF32


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

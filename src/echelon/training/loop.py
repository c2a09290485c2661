"""The training loop, the same for one run, for several seeds side by side and for several ranks: iterate, log, save."""

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from enum import IntEnum
from time import monotonic

from echelon.config import TrainConfig
from echelon.console.view import Interrupt, NullView, Preempted, View, choose_view
from echelon.envs.contract import MakeEnv
from echelon.errors import UserError
from echelon.ranks import join
from echelon.runs.folder import RunFolder
from echelon.training.callbacks import FIRST_S, SHARE, Callback, CheckpointCallback, Stop, call, until
from echelon.training.resolve import Resolved, explain_full_memory, resolve
from echelon.training.run import Run
from echelon.training.setup import start
from echelon.training.trainer import Iteration

Callbacks = Callback | CheckpointCallback | Sequence[Callback | CheckpointCallback]


def train(
    config: TrainConfig | Resolved,
    view: View | None = None,
    make_env: MakeEnv | None = None,
    callbacks: Callbacks = (),
    *,
    change: bool = False,
) -> RunFolder:
    """Train as `config` says, in its run folder; a folder that exists is resumed where it stopped.

    Progress is shown on a terminal, or printed as lines; `view=NullView()` shows nothing. `callbacks` are called after
    every iteration (`echelon.training.callbacks`); evaluations and films are callbacks, too.

    With `change`, a stored run continues with settings that differ from its own, where that is possible; changes are
    recorded.

    `make_env` builds the environment; the default is the task of that name. Give a config for an environment of
    your own a `task` name of your own.

    Processes that torchrun starts train one run together, each with an equal part of the environments.
    """
    (folder,) = Loop(config, view, make_env, callbacks).run(change=change)
    return folder


def train_seeds(
    config: TrainConfig | Resolved,
    seeds: Sequence[int],
    view: View | None = None,
    make_env: MakeEnv | None = None,
    callbacks: Callbacks = (),
) -> list[RunFolder]:
    """Train as `config` says with each of several seeds, side by side; the folder of each seed's run.

    `num_envs` are those of a seed. With `out`, the folders are `seed_3` and so on inside it; else each is named as the
    run of that seed alone would be. The same call resumes all of them where they stopped together.

    The seeds end together, so callbacks are asked about the means of their metrics; checkpoint callbacks are called for
    each seed.
    """
    return Loop(config, view, make_env, callbacks).run(seeds)


class Decision(IntEnum):
    """What to do after an iteration. Ranks may disagree: the highest value wins."""

    CONTINUE = 0
    SAVE = 1
    FINISH = 2
    STOP = 3
    REQUEUE = 4


class Loop:
    """Iterates until all runs are done, a callback has enough, or a signal asks to stop. All ranks do the same, and
    rank 0 calls the callbacks."""

    def __init__(
        self, config: TrainConfig | Resolved, view: View | None, make_env: MakeEnv | None, callbacks: Callbacks
    ) -> None:
        if not isinstance(config, TrainConfig | Resolved):
            raise UserError(f'train takes settings, as in train(preset("Hopper")), not {config!r}')
        if isinstance(config, TrainConfig):
            ranks, given = join(), config
            config = ranks.attempt(lambda: resolve(given, ranks=ranks))
        self.resolved, self.config, self.ranks, self.make_env = config, config.config, config.ranks, make_env
        self.view = (view or choose_view()) if self.ranks.first else NullView()
        called = callbacks if isinstance(callbacks, Sequence) else (callbacks,)
        self.callbacks = [one for one in called if not isinstance(one, CheckpointCallback)]
        self.checkpoint_callbacks = [one for one in called if isinstance(one, CheckpointCallback)]
        self.runs: list[Run] = []
        self.reason = ""
        """Why a callback stopped the run, if one did."""
        self.spent, self.next_s = 0.0, FIRST_S
        """Seconds that checkpoint callbacks have taken, and that their next call is taken to need."""

    def run(self, seeds: Sequence[int] | None = None, change: bool = False) -> list[RunFolder]:
        """Train one run, or one per seed; their folders."""
        view = self.view
        try:
            self.callbacks += [until(self.config.until)] if self.config.until else []
            self.trainer, folders, seconds = start(self.resolved, seeds, self.make_env, view, change)
            starts = zip(self.trainer.runs, folders, seconds, strict=True)
            with ExitStack() as stack:
                stack.callback(view.stop)
                stack.push(self._leave_nothing)
                view.start(folders[0].config, folders[0], self.config.num_iterations, self.trainer.iteration)
                for one in starts:
                    self.runs.append(run := Run(*one, view.message, len(folders) > 1))
                    stack.enter_context(run.writer or nullcontext())
                self._train()
        except UserError as error:
            raise self.ranks.explained(error) from error.__cause__
        return folders

    def _leave_nothing(self, kind: type[BaseException] | None, *_: object) -> None:
        """Remove the folders if the first iteration failed, once their files are closed."""
        if self.ranks.first and kind is not None and issubclass(kind, Exception) and self.trainer.iteration == 0:
            for run in self.runs:
                run.folder.discard()

    def _train(self) -> None:
        trainer, view, decision = self.trainer, self.view, Decision.CONTINUE
        where = " to ".join(dict.fromkeys(str(run.folder.path) for run in (self.runs[0], self.runs[-1])))
        if self.ranks.size > 1:
            view.message(f"{self.ranks.size} ranks, each with {trainer.env.num_envs} of the environments")
        if len(self.runs) > 1:
            view.message(f"{len(self.runs)} seeds side by side, in {where}; means of all are shown")
        if trainer.iteration >= self.config.num_iterations:
            view.message(f"finished already: all {trainer.iteration} iterations are done, in {where}")
        if trainer.preface:
            view.message(trainer.preface)
        self.first, self.saved = trainer.iteration + 1, monotonic()
        with Interrupt() as interrupt:
            while trainer.iteration < self.config.num_iterations and decision < Decision.FINISH:
                for run, result in zip(self.runs, self._iterate(), strict=True):
                    run.take(result)
                decision = Decision(self.ranks.agree(lambda: self._log_and_decide(interrupt)))
                self._check_and_save(decision)
        if decision >= Decision.STOP:
            view.message(f"interrupted: iteration {trainer.iteration} is saved in {where}")
            raise KeyboardInterrupt if decision == Decision.STOP else Preempted
        if decision == Decision.FINISH:
            view.message(f"stopped after iteration {trainer.iteration}: {self.reason}")

    def _iterate(self) -> list[Iteration]:
        try:
            with explain_full_memory(self.config):
                return self.trainer.iterate_each()
        except FloatingPointError as error:
            raise self.runs[0].diverged(str(error)) from None

    def _log_and_decide(self, interrupt: Interrupt) -> Decision:
        for run in self.runs:
            run.log()
        metrics = _mean([run.metrics for run in self.runs])
        self.view.update(metrics)
        if self.trainer.iteration == self.first and self.trainer.collector.lacks_final_obs:
            lacks = "the environment gives no final_obs: where its time limit ends an episode"
            self.view.message(f"{lacks}, the value of the state before the last step is used instead")
        stop = interrupt.asked or self.view.closed  # read once: a signal that comes later is for the next iteration
        answers, overdue = [], False
        if self.ranks.first and not any(run.infinite_loss for run in self.runs):
            answers = [callback(metrics) for callback in self.callbacks]
            overdue = 0 < 60 * self.config.checkpoint_minutes <= monotonic() - self.saved
        for answer in answers:
            if isinstance(answer, str):
                self.view.message(answer)
        if stop:
            return Decision.REQUEUE if interrupt.requeue else Decision.STOP
        if stops := [answer for answer in answers if isinstance(answer, Stop)]:
            self.reason = stops[0].reason
            return Decision.FINISH
        return Decision.SAVE if overdue else Decision.CONTINUE

    def _check_and_save(self, decision: Decision) -> None:
        trainer, config = self.trainer, self.config
        last = decision >= Decision.FINISH or trainer.iteration == config.num_iterations
        due = [one for one in self.checkpoint_callbacks if last or (one.every and trainer.iteration % one.every == 0)]
        due = due if decision < Decision.STOP else []
        saving = bool(last or due or decision == Decision.SAVE or trainer.iteration % config.checkpoint_every == 0)
        if saving:
            trainer.sync_learned()
        for run in self.runs:
            run.check(saving=saving, last=last)
        if saving:
            for run in self.runs:
                run.save()
            self.saved = monotonic()
            if decision < Decision.FINISH and self.spent + self.next_s <= SHARE * self.runs[0].metrics["wall_s"]:
                due += [one for one in self.checkpoint_callbacks if one.every is None and one not in due]
        if due and self.ranks.first:
            for run in self.runs:
                run.figures |= call(due, run.folder, self.make_env, run.say)
                if run.writer:
                    run.writer.send_film(trainer.iteration, int(run.metrics["env_steps"]))
            self.next_s = monotonic() - self.saved
            self.spent += self.next_s
            for run in self.runs:
                run.skip(self.next_s)
        if last:
            self.view.message(f"where the time went:\n{trainer.timers.table()}")


def _mean(metrics: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """The mean over runs of each metric's finite values, and the sum of their rates."""
    if len(metrics) == 1:
        return metrics[0]
    result: dict[str, float] = {}
    for name in metrics[0]:
        known = [one[name] for one in metrics if math.isfinite(one.get(name, math.nan))]
        mean = sum(known) / len(known) if known else math.nan
        result[name] = mean * len(metrics) if name.startswith("fps/") else mean
    return result

"""`echelon sweep`: find good values of settings, by trials that Optuna chooses."""

import itertools
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from echelon.commands.command import names_flag
from echelon.commands.compare import UNEVEN, OnGrid, swept_settings
from echelon.commands.train import OnTask, configure
from echelon.config import TrainConfig
from echelon.config.checks import settings_of
from echelon.config.ranges import COUNT
from echelon.console.flags import flags_of, read, spans
from echelon.errors import UserError, require_package
from echelon.training.resolve import resolve


@dataclass(frozen=True)
class Sweep(OnTask, OnGrid):
    """Find good values of settings: echelon sweep Hopper --over update.learning-rate 1e-4 1e-2 --trials 20. Optuna
    chooses the values of each trial by the scores of earlier ones; the first trial has those of the preset. Every trial
    is a run folder, evaluated at its end. The same command resumes where it stopped. All other flags are those of
    echelon train, for every trial."""

    refused: ClassVar = {"--seeds": "; a trial has one --seed", "--resume": "; the same command resumes"} | UNEVEN

    over: tuple[str, ...] = ()
    """A setting and its range, or more than two values: --over update.clip 0.1 0.3 --over model.lstm 0 64 128"""
    trials: Annotated[int, COUNT.up_to(10_000)] = 20
    """How many runs, those of earlier starts among them."""
    pruner: Literal["median", "hyperband", "none"] = "median"
    """How to choose trials that are stopped early: below the median of others, or hyperband's halving."""
    score: str = "return"
    """What to maximise: return, successes, or whatever else the task logs of an episode."""
    out: str | None = None
    """Folder of the run folders; if unset, named after task and method. With --on, all machines must share it."""

    def check(self) -> None:
        super().check()
        if not self.over:
            raise UserError("sweep needs a setting and its range, as in --over update.learning-rate 1e-4 1e-2")

    def run(self) -> int:
        require_package("optuna", "echelon sweep", "sweep")
        over, first, start = self.space()
        with self.cluster() as cluster:
            from echelon import grid
            from echelon.console.wording import figure, text_table
            from echelon.grid.local import default_workers
            from echelon.grid.sweep import Sweep as Study

            def make(words: tuple[str, ...]) -> TrainConfig:
                config = self.configured(words)
                device = cluster and (cluster.device if config.device == "auto" else config.device)
                return resolve(config, fit_envs=not self.chooses("num_envs", more=words), elsewhere=device).config

            for end in (0, -1):  # what cannot work is reported before the first trial
                complete = make(tuple(word for flag, values in over.items() for word in (flag, str(values[end]))))
            folder = Path(self.out or f"runs/{start.task}-{start.method}-sweep")
            folder = folder.absolute() if self.on else folder
            at_once = cluster.room if cluster else self.workers or default_workers(complete.device)
            given = {"trials": self.trials, "at_once": at_once, "score": self.score, "pruner": self.pruner}
            study = Study(folder, over, first, start, make, **given)
            jobs, on = [*study.jobs.values()], {"workers": at_once, "cluster": cluster}
            failed = grid.run(jobs, folder / "logs", **on, more=study.more, total=max(self.trials, len(jobs)))
        heading, *rows = study.rows(failed)
        print(text_table(rows, heading, right=range(len(heading) - 1)), end="")
        if ranked := study.ranked():
            best = ranked[0]
            source = [self.task] if self.task else ["--env", self.env] if self.env else []
            source += ["--config", self.config] if self.config else []
            others = (span for span in spans(self.train_flags) if not any(names_flag(span[:1], flag) for flag in over))
            words = ["echelon", "train", *source, *itertools.chain(*others), *study.words(best)]
            print(f"\nThe best is trial {best.number}, {self.score} {figure(best.value or 0.0)}:  {shlex.join(words)}")
        print(f"All trials on a page:  echelon report {shlex.quote(str(folder))} --open")
        return 1 if failed else 0

    def configured(self, words: tuple[str, ...] = ()) -> TrainConfig:
        task, stored = self.stored()
        return replace(configure(task, [*self.train_flags, *words], command="sweep", stored=stored), until=None)

    def space(self) -> tuple[dict[str, list[Any]], dict[str, Any], TrainConfig]:
        """By flag, the two numbers of a range or the words of a list, and which of them the first trial has; and the
        settings to start from."""
        start, over, first = self.configured(), dict[str, list[Any]](), dict[str, Any]()
        known, settings = flags_of(start), settings_of(start)
        for flag, words in swept_settings(start, self.over, "--over").items():
            name = known[flag].name
            typed, now = [read(start, [flag, word], "echelon sweep")[name] for word in words], settings[name]
            numbers = len(typed) == 2 and all(type(value) in (int, float) for value in typed)
            over[flag] = typed if numbers else words
            if numbers and typed[0] >= typed[1]:
                raise UserError(f"--over {flag.lstrip('-')} takes the lower value first, not {' '.join(words)}")
            if now in typed or (numbers and now is not None and typed[0] <= now <= typed[1]):
                first[flag] = now if numbers else words[typed.index(now)]
        return over, first, start

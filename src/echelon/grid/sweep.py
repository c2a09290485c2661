"""A sweep: jobs whose settings Optuna chooses by the scores of earlier ones. Its study is a file in the sweep's folder,
and the outcome of a job is read from its run folder, so the same call resumes a sweep that was killed."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from echelon.config import TrainConfig
from echelon.console.wording import figure
from echelon.errors import UserError, nearest
from echelon.grid.jobs import Job
from echelon.grid.runner import Grid
from echelon.runs.durable import replace_durably, writing
from echelon.runs.folder import CONFIG, PRUNED, RunFolder, hold
from echelon.runs.metrics import read_columns

RUNGS = 10
"""A run is compared with the others after each tenth of its iterations, except the first and the last."""
RANDOM_TRIALS = 5
"""Trials that are drawn at random, and trained to their end, before scores decide."""
Words = tuple[str, ...]


class Sweep:
    """Chooses the settings of up to `trials` jobs, `at_once` of them at a time, and prunes those that fall behind."""

    def __init__(
        self,
        folder: Path,
        over: Mapping[str, Sequence[Any]],
        first: Mapping[str, Any],
        start: TrainConfig,
        make: Callable[[Words], TrainConfig],
        *,
        trials: int,
        at_once: int,
        score: str,
        pruner: str,
    ) -> None:
        """`over` has two numbers or a list of words by flag, `first` those of trial 0, as far as they are not drawn.
        `make` returns the complete settings for words of a command line, which change those of `start`."""
        self.folder, self.make, self.trials, self.at_once, self.score = folder, make, trials, at_once, score
        self._seed, self._space = start.seed, {flag: distribution(values) for flag, values in over.items()}
        with writing(folder, "choose another folder with --out"):
            folder.mkdir(parents=True, exist_ok=True)
            hold(folder)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        pruners = {
            "median": optuna.pruners.MedianPruner(RANDOM_TRIALS, n_warmup_steps=2),
            "hyperband": optuna.pruners.HyperbandPruner(max_resource=RUNGS),
            "none": optuna.pruners.NopPruner(),
        }
        self.study = optuna.create_study(
            storage=f"sqlite:///{folder / 'study.db'}",
            study_name="sweep",
            direction="maximize",
            pruner=pruners[pruner],
            load_if_exists=True,
        )
        about: dict[str, Any] = {"task": start.task, "iterations": start.num_iterations, "score": score}
        about["over"] = {flag: [*values] for flag, values in sorted(over.items())}
        if self.study.user_attrs.setdefault("about", about) != about:
            raise UserError(f"{folder} holds another sweep: {self.study.user_attrs['about']}; choose another --out")
        self.study.set_user_attr("about", about)
        if not self.study.get_trials():
            self.study.enqueue_trial(dict(first))
        self.jobs: dict[int, Job] = {}
        """By the number of the trial."""
        for trial in self.begun():
            if self._space.keys() <= trial.params.keys() and trial.state != TrialState.FAIL:
                job = self._add(trial)
                if (job.path / CONFIG).exists():
                    RunFolder.open(job.path).require_same(job.config)
            elif trial.state == TrialState.RUNNING:  # a kill came before its values were stored
                self.study.tell(trial.number, state=TrialState.FAIL)

    def words(self, trial: FrozenTrial) -> Words:
        """A trial's settings as words of a command line."""
        return tuple(word for flag in self._space for word in (flag, worded(trial.params[flag])))

    def _add(self, trial: FrozenTrial) -> Job:
        name = f"trial-{trial.number:03d}"
        config = self.make((*self.words(trial), "--out", str(self.folder / name)))
        return self.jobs.setdefault(trial.number, Job(name, config, evaluate=True))

    def more(self, grid: Grid) -> list[Job]:
        """Record the scores of trials so far, prune, and choose new ones as long as there is room for them."""
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            job, done = self.jobs[trial.number], self.jobs[trial.number].done
            if done or grid.state(job) == "running":
                self._compare(trial, job, prune=not job.trained)
            if job.pruned:
                self.study.tell(trial.number, state=TrialState.PRUNED)
            elif done:
                self.study.tell(trial.number, job.score(self.score))
        new: list[Job] = []
        busy = len(grid.in_state("running", "left"))
        while busy + len(new) < self.at_once and (number := len(self.begun())) < self.trials:
            # Seeded by its number: a sweep that was killed draws what it would have drawn.
            self.study.sampler = optuna.samplers.TPESampler(seed=self._seed + number, n_startup_trials=RANDOM_TRIALS)
            live = self.study.ask(self._space)
            try:
                new.append(self._add(self.begun()[number]))
            except UserError as error:  # settings that do not go together
                live.set_user_attr("why", str(error))
                self.study.tell(live, state=TrialState.FAIL)
        return new

    def begun(self) -> list[FrozenTrial]:
        """All trials except one that waits to be started."""
        return [trial for trial in self.study.get_trials(deepcopy=False) if trial.state != TrialState.WAITING]

    def _compare(self, trial: FrozenTrial, job: Job, prune: bool) -> None:
        """Tell the pruner of the stretches that the run has trained since the last call; stop the run if it says so."""
        total, metric = job.config.num_iterations, f"{self.score}/leader"
        seen = max(trial.intermediate_values, default=0)
        reached = min(job.newest().get("iteration", 0) * RUNGS // total, RUNGS - 1)
        if reached <= seen:
            return
        columns = read_columns(job.path, metric.__eq__)
        if metric not in columns:
            known = (name.removesuffix("/leader") for name in job.newest() if name.endswith("/leader"))
            raise UserError(f"--score {self.score} is not logged by this task{nearest(self.score, known)}")
        of, live = np.ceil(columns["iteration"] * RUNGS / total), optuna.Trial(self.study, trial._trial_id)
        for rung in range(seen + 1, reached + 1):
            values = columns[metric][(of == rung) & np.isfinite(columns[metric])]
            if len(values):
                live.report(float(values.mean()), rung)
            if len(values) and prune and live.should_prune():
                rule = type(self.study.pruner).__name__.removesuffix("Pruner").lower()
                said = f"pruned by the {rule} rule: {self.score} {figure(values.mean())} after {rung / RUNGS:.0%} of it"
                replace_durably(job.path / PRUNED, said.encode())
                return

    def ranked(self) -> list[FrozenTrial]:
        """The finished trials, the best first."""
        done = self.study.get_trials(states=(TrialState.COMPLETE,))
        return sorted(done, key=lambda trial: -(trial.value or 0.0))

    def rows(self, failed: Mapping[str, str]) -> list[tuple[str, ...]]:
        """A heading, then a row per trial, the best first: its settings, its score, and what else there is to say."""
        rows = [("trial", *(flag.lstrip("-") for flag in self._space), self.score, "")]
        for trial in [*self.ranked(), *(trial for trial in self.begun() if trial.state != TrialState.COMPLETE)]:
            job, done = self.jobs.get(trial.number), trial.state == TrialState.COMPLETE
            said = trial.user_attrs.get("why", "") if job is None else job.pruned or failed.get(job.name, "")
            values = (worded(trial.params[flag]) if flag in trial.params else "-" for flag in self._space)
            rows.append((str(trial.number), *values, figure(trial.value or 0.0) if done else "-", said))
        return rows


def worded(value: Any) -> str:
    """A value as one types it; six digits of a number say enough."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def distribution(values: Sequence[Any]) -> BaseDistribution:
    """What Optuna draws from: the range between two numbers, on a log scale from a factor of ten on, or a list."""
    if len(values) != 2 or isinstance(values[0], str):
        return CategoricalDistribution([*values])
    low, high = values
    kind = IntDistribution if isinstance(low, int) else FloatDistribution
    return kind(low, high, log=0 < 10 * low <= high)

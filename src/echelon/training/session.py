"""One start of a run: its clock, its checkpoints, and what it says and stores about its environment."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from echelon.config import TaskConfig, TrainConfig
from echelon.console.view import View
from echelon.envs.contract import Env
from echelon.errors import UserError
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.runs.json_lines import LineWriter
from echelon.runs.lock import still_ours
from echelon.runs.soundness import unsound
from echelon.training.soundness import diverged, environment_fault
from echelon.training.trainer import Trainer


class Session:
    """One start of a run: its clock, which continues that of the last start, and its checkpoints."""

    def __init__(
        self, trainer: Trainer, folder: RunFolder, seconds_before: float, files: Sequence[LineWriter] = ()
    ) -> None:
        """`files` are synced before every checkpoint."""
        self.trainer, self.folder, self.files = trainer, folder, files
        self.first = trainer.iteration + 1
        """The first iteration of this start."""
        self.reason = ""
        """Why a callback stopped the run, if one did."""
        self._noted = False
        self.steps = trainer.config.steps_per_iteration
        self.last = time.perf_counter()
        self.began = self.last - seconds_before

    @property
    def env_steps(self) -> int:
        return self.trainer.iteration * self.steps

    def clock(self) -> dict[str, float]:
        """Metrics of progress and speed, for the iteration that just ended."""
        now = time.perf_counter()
        spent, self.last = now - self.last, now
        seconds = self.trainer.timers.iteration
        return {
            "iteration": self.trainer.iteration,
            "env_steps": self.env_steps,
            "gradient_steps": self.trainer.gradient_steps,
            "wall_s": now - self.began,
            "fps/total": self.steps / spent,
            "fps/collect": self.steps / seconds["collect"].seconds,
            "fps/update": self.steps / seconds["update"].seconds,
        }

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock: an evaluation or a film is not training time."""
        began = time.perf_counter()
        yield
        spent = time.perf_counter() - began
        self.last += spent
        self.began += spent

    def state(self) -> dict[str, object]:
        return {
            "trainer": self.trainer.state_dict(),
            "seconds": time.perf_counter() - self.began,
            "device": self.trainer.env.device.type,
        }

    def save(self, score: float) -> None:
        """Write a checkpoint, after the log files are on the disk. Raises a `UserError` if the state is not finite."""
        ranks = self.trainer.ranks
        self.trainer.share()
        state = self.state()
        if self.trainer.selection is None and environment_fault(self.trainer):
            raise diverged(self.trainer, "a run that goes on from there would learn from it", self.folder)
        if spoiled := unsound(state):
            raise diverged(self.trainer, f"{spoiled} is not finite", self.folder)
        ranks.attempt(self._sync)
        checkpoint.save(self.folder, self.trainer.iteration, state, score, ranks, self.trainer.own_state())
        if not self._noted:
            ranks.attempt(lambda: self.folder.note_saved() if ranks.first else None)
            self._noted = True

    def _sync(self) -> None:
        for file in self.files:
            file.sync()

    def require_folder(self) -> None:
        """Raise a `UserError` if the folder was moved, deleted or replaced: it is not made a second time."""
        if not still_ours(self.folder.path):
            raise UserError(
                f"{self.folder.path} was moved or deleted while it was trained, so the run stops; if it was moved, "
                "the same command with --out and its new place resumes it from its last checkpoint"
            )


def with_env_settings(config: TrainConfig, folder: RunFolder, env: Env | None) -> tuple[TrainConfig, RunFolder]:
    """`config` with the settings that the environment chose where they were left open; stored in the folder too."""
    settings = getattr(env, "config", None)
    if not isinstance(settings, TaskConfig) or settings == config.env:
        return config, folder
    config = dataclasses.replace(config, env=settings)
    return config, folder.with_config(config)


def say_what_is_missing(trainer: Trainer, view: View) -> None:
    """Tell the user about optional parts that the environment lacks, where that costs accuracy."""
    if trainer.collector.lacks_final_obs:
        view.message(
            "the environment gives no final_obs: where its time limit ends an episode, the value of the state before "
            "the last step is used instead"
        )

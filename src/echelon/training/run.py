"""One run while it trains: its clock, its log, its warnings and its checkpoints."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from echelon.errors import UserError
from echelon.runs import checkpoint
from echelon.runs.faults import keep_faults, with_policies
from echelon.runs.folder import RunFolder, still_ours
from echelon.runs.metrics import RunWriter
from echelon.training.soundness import require_finite
from echelon.training.trainer import Iteration, Trainer
from echelon.training.trouble import TroubleWatch


class Run:
    """One start of a run. On several ranks all call the same methods, and rank 0 writes. Use it as a context
    manager."""

    def __init__(self, trainer: Trainer, folder: RunFolder, seconds_before: float, say: Callable[[str], None]) -> None:
        """`seconds_before` is the training time of earlier starts; `say` shows a text."""
        self.trainer, self.folder, self.say = trainer, folder, say
        self.metrics: dict[str, float] = {}
        """Metrics of the last iteration."""
        self.figures: dict[str, float] = {}
        """Metrics that checkpoint callbacks returned last."""
        self._result = Iteration({}, None)
        self._trouble = TroubleWatch(trainer.config, say)
        self._steps = trainer.config.steps_per_iteration
        self._noted = False
        self.writer = trainer.ranks.attempt(lambda: self._open() if trainer.ranks.first else None)
        self._last = time.perf_counter()
        self._began = self._last - seconds_before

    def _open(self) -> RunWriter:
        trainer, writer = self.trainer, RunWriter(self.folder, self.trainer.iteration)
        if writer.gap:
            self.say(f"WARNING: {writer.gap}")
        if trainer.selection is not None and trainer.iteration == 0:
            first = [{"member": member, "after": values} for member, values in enumerate(trainer.selection.start())]
            writer.write_takeovers(0, 0, first)
        return writer

    def take(self, result: Iteration) -> None:
        """Take in the results of an iteration, and add progress and speed to its metrics."""
        now, trainer = time.perf_counter(), self.trainer
        spent, self._last = now - self._last, now
        seconds = trainer.timers.iteration
        progress = {
            "iteration": trainer.iteration,
            "env_steps": trainer.iteration * self._steps,
            "gradient_steps": trainer.gradient_steps,
            "wall_s": now - self._began,
            "fps/total": self._steps / spent,
            "fps/collect": self._steps / seconds["collect"].seconds,
            "fps/update": self._steps / seconds["update"].seconds,
        }
        self._result = result
        self.metrics = progress | result.metrics | trainer.timers.metrics() | self.figures

    def log(self) -> None:
        """Write the iteration. Raises a `UserError` if the folder was moved, deleted or replaced: it is not made a
        second time."""
        if self.writer is None:
            return
        if not still_ours(self.folder.path):
            raise UserError(
                f"{self.folder.path} was moved or deleted while it was trained, so the run stops; if it was moved, "
                "the same command with --out and its new place resumes it from its last checkpoint"
            )
        self.writer.write(self.metrics)
        iteration, env_steps = self.trainer.iteration, int(self.metrics["env_steps"])
        if self._result.kl_matrix is not None:
            self.writer.write_distances(iteration, env_steps, self._result.kl_matrix)
        if self._result.takeovers:
            takeovers = [dataclasses.asdict(takeover) for takeover in self._result.takeovers]
            self.writer.write_takeovers(iteration, env_steps, takeovers)

    def check(self, *, saving: bool, last: bool) -> None:
        """Raise a `UserError` if numbers are not finite, warn about other problems, and keep simulations that went
        wrong."""
        require_finite(self.trainer, self.metrics, self.folder, saving)
        self._trouble.check(self.metrics, self._result.takeovers, last)
        if self.metrics.get("env/quarantined", 0.0) > 0:
            self._keep_faults()

    def _keep_faults(self) -> None:
        """Write simulations that went wrong, of all ranks, each with the policy that drove it."""
        trainer = self.trainer
        found = with_policies(getattr(trainer.env, "take_faults", list)(), trainer.layout.policy_id.tolist())
        faults = [fault for rank in trainer.ranks.gather(found) for fault in rank]
        trainer.ranks.attempt(lambda: keep_faults(self.folder, trainer.iteration, faults) if self.writer else None)

    def save(self) -> None:
        """Write a checkpoint, after the log is on the disk."""
        trainer, ranks, writer = self.trainer, self.trainer.ranks, self.writer
        ranks.attempt(lambda: writer.sync() if writer else None)
        state = {
            "trainer": trainer.state_dict(),
            "seconds": time.perf_counter() - self._began,
            "device": trainer.env.device.type,
        }
        score = trainer.score(self._result.metrics)
        checkpoint.save(self.folder, trainer.iteration, state, score, ranks, trainer.own_state())
        if not self._noted:
            ranks.attempt(lambda: self.folder.note_saved() if writer else None)
            self._noted = True

    def skip(self, seconds: float) -> None:
        """Leave out the time of an evaluation or a film, which is not training time."""
        self._last += seconds
        self._began += seconds

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *error: Any) -> None:
        if self.writer is not None:
            self.writer.__exit__(*error)

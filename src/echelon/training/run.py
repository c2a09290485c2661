"""One run while it trains: its clock, its log, its checks, its warnings and its checkpoints."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence

from echelon.algorithms.algorithm import Takeover
from echelon.config import TrainConfig
from echelon.config.checks import setting
from echelon.console.wording import figure
from echelon.envs.contract import find_fault
from echelon.errors import UserError
from echelon.learning.optimizer import HIGHEST, LOWEST
from echelon.models.normaliser import LIMIT
from echelon.runs import checkpoint
from echelon.runs.faults import keep_faults
from echelon.runs.folder import RunFolder, still_ours
from echelon.runs.metrics import RunWriter
from echelon.training.trainer import Iteration, Trainer

CHECK_EVERY = 50
"""Iterations between two checks of observations and rewards, each of which waits for the device."""
WARNING_INTERVAL = 50
"""Iterations between two warnings of the same kind."""
LOST_CONTACTS_LIMIT = 1e-3
"""Fraction of environment steps that may lose contacts or constraints without a warning."""
LONG_AT_BOUND = 100
"""Iterations at a bound of the learning rate after which to warn."""
WEAK_PULL = 0.98
"""Mean weight exp(Â/λ) below which to warn: it is at least 1 where Â has mean 0, up to sampling error."""


class Run:
    """One start of a run. On several ranks all call the same methods, and rank 0 writes. The caller closes `writer`."""

    def __init__(
        self, trainer: Trainer, folder: RunFolder, seconds_before: float, say: Callable[[str], None], named: bool
    ) -> None:
        """`seconds_before` is the training time of earlier starts; `say` shows a text, after the seed if `named`."""
        self.trainer, self.folder = trainer, folder
        self.say = (lambda text: say(f"seed {folder.config.seed}: {text}")) if named else say
        self.metrics: dict[str, float] = {}
        """Metrics of the last iteration."""
        self.figures: dict[str, float] = {}
        """Metrics that checkpoint callbacks returned last."""
        self._result = Iteration({}, None)
        self._trouble = TroubleWatch(trainer.config, self.say, lambda kind: _furthest(trainer, kind))
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
        now, trainer, steps = time.perf_counter(), self.trainer, self.trainer.config.steps_per_iteration
        spent, self._last = now - self._last, now
        seconds = trainer.timers.iteration
        progress = {
            "iteration": trainer.iteration,
            "env_steps": trainer.iteration * steps,
            "gradient_steps": trainer.gradient_steps,
            "wall_s": now - self._began,
            "fps/total": steps / spent,
            "fps/collect": steps / seconds["collect"].seconds,
            "fps/update": steps / (seconds["update"].seconds or math.inf),
        }
        self._result = result
        self.metrics = progress | result.metrics | trainer.timers.metrics() | self.figures

    def log(self) -> None:
        """Write the iteration. Raises a `UserError` if the folder was moved, deleted or replaced: it is not made a
        second time."""
        if self.writer is None:
            return
        if not still_ours(self.folder.path):
            gone = f"{self.folder.path} was moved or deleted while it was trained, so the run stops"
            again = "the same command with --out and its new place resumes it from its last checkpoint"
            raise UserError(f"{gone}; if it was moved, {again}")
        self.writer.write(self.metrics)
        iteration, env_steps = self.trainer.iteration, int(self.metrics["env_steps"])
        if self._result.kl_matrix is not None:
            self.writer.write_distances(iteration, env_steps, self._result.kl_matrix)
        if self._result.takeovers:
            takeovers = [dataclasses.asdict(takeover) for takeover in self._result.takeovers]
            self.writer.write_takeovers(iteration, env_steps, takeovers)

    def check(self, *, saving: bool, last: bool) -> None:
        """Raise a `UserError` if losses are not finite; every `CHECK_EVERY` iterations, and when `saving`, also if
        observations, rewards or anything learned are not. Warn about other problems, and keep simulations that went
        wrong. A collective call: all ranks make it.

        A population replaces members that diverge, so only its state as a whole is checked, before it is saved.
        """
        trainer, ranks = self.trainer, self.trainer.ranks
        wrong = self.infinite_loss or (checkpoint.unsound({"trainer": trainer.learned()}) if saving else None)
        if wrong is not None:
            raise self.diverged(f"{wrong} is not finite")
        if trainer.selection is None and (saving or trainer.iteration % CHECK_EVERY == 0) and self._fault():
            raise self.diverged("training would learn from it")
        self._trouble.check(self.metrics, self._result.takeovers, last)
        if self.metrics.get("env/quarantined", 0.0) > 0:
            found, policies = getattr(trainer.env, "take_faults", list)(), trainer.layout.policy_id.tolist()
            found = [{"policy": policies[fault["environment"]]} | fault for fault in found]
            faults = [fault for rank in ranks.gather(found) for fault in rank]
            ranks.attempt(lambda: keep_faults(self.folder, trainer.iteration, faults) if self.writer else None)

    @property
    def infinite_loss(self) -> str | None:
        """The name of a loss that is not finite. A population has none: it outlives members that diverge."""
        wrong = (name for name in ("loss/actor", "loss/critic") if not math.isfinite(self.metrics[name]))
        return next(wrong, None) if self.trainer.selection is None else None

    def diverged(self, what: str) -> UserError:
        """The error for a run that cannot continue, with its cause. A collective call."""
        cause, advice = "learning diverged", "start again with --out and a smaller --update.learning-rate or reward"
        if fault := self._fault():
            cause, advice = f"{fault}, seen", "fix the environment and rerun the command to resume"
        before = f"any checkpoint in {self.folder.path} is from before"
        text = f"{cause} in iteration {self.trainer.iteration}: {what}; {before}; {advice}"
        return self.trainer.ranks.said_once(UserError(text))

    def _fault(self) -> str | None:
        """A fault in the observations or rewards of any rank's last rollout, or left in the normalisers by an earlier
        one. A collective call."""
        return next((fault for fault in self.trainer.ranks.gather(_fault_of_rank(self.trainer)) if fault), None)

    def save(self) -> None:
        """Write a checkpoint, after the log is on the disk."""
        trainer, ranks, writer = self.trainer, self.trainer.ranks, self.writer
        ranks.attempt(lambda: writer.sync() if writer else None)
        state = {
            "trainer": trainer.state_dict(),
            "seconds": time.perf_counter() - self._began,
            "device": trainer.env.device.type,
        }
        score = (trainer.selection or trainer.algorithm).score(self._result.metrics)
        checkpoint.save(self.folder, trainer.iteration, state, score, ranks, trainer.own_state())
        if not self._noted:
            ranks.attempt(lambda: self.folder.note_saved() if writer else None)
            self._noted = True

    def skip(self, seconds: float) -> None:
        """Leave out the time of an evaluation or a film, which is not training time."""
        self._last += seconds
        self._began += seconds


def _fault_of_rank(trainer: Trainer) -> str | None:
    rollout = trainer.collector.rollout
    for name, x in rollout.obs.items():
        if x.is_floating_point() and (fault := find_fault(f"observation {name}", x)):
            return fault
    if fault := find_fault("reward", rollout.reward, abs(trainer.config.update.reward_scale)):
        return fault
    for name, normaliser in trainer.model.obs_norm.items():
        if find_fault(name, normaliser.std[None]):
            return f"the environment gave an observation {name} that is not finite, or larger than 1e10"
    return None


def _furthest(trainer: Trainer, kind: str) -> str:
    """Where the observation or the reward of the last rollout is that lies furthest from the others."""
    rollout, far = trainer.collector.rollout, {}
    if kind == "returns":
        far["the largest reward"] = rollout.reward.abs()
    else:
        for name, normaliser in trainer.model.obs_norm.items():
            far[f"the furthest of {name}"] = normaliser.distance(rollout.obs[name][:-1])
    what = max(far, key=lambda name: float(far[name].max()))
    step, environment = divmod(int(far[what].argmax()), far[what].shape[1])
    return f", {what} in environment {environment} at step {step} of {len(far[what])}"


class TroubleWatch:
    """Warns about lost contacts, diverged simulations and settings that work against learning, at most once per
    `WARNING_INTERVAL` iterations of each kind."""

    def __init__(self, config: TrainConfig, say: Callable[[str], None], furthest: Callable[[str], str]) -> None:
        """`furthest` says where the largest of the last observations, or rewards, is."""
        self._config, self._say, self._furthest = config, say, furthest
        self._next: dict[str, float] = {}
        """Iteration from which on a kind of warning may be given again."""
        self._quarantined, self._first = 0.0, 0.0
        """Simulations quarantined since the last warning, and the iteration of the first."""
        self._at_bound = 0
        """Iterations in a row whose learning rate was at a bound."""

    def check(self, metrics: Mapping[str, float], takeovers: Sequence[Takeover] = (), last: bool = False) -> None:
        """Check one iteration. After the `last` one, pending quarantines are reported at once."""
        iteration = metrics["iteration"]
        self._first = self._first if self._quarantined else iteration
        self._quarantined += metrics.get("env/quarantined", 0.0)
        moves = self._config.update.rate_schedule != "fixed"
        self._at_bound = self._at_bound + 1 if moves and not LOWEST * 1.001 < metrics["lr"] < HIGHEST * 0.999 else 0
        for kind, text in self._problems(iteration, metrics, takeovers).items():
            if iteration >= self._next.get(kind, 0.0) or (last and kind == "quarantined"):
                self._next[kind] = math.inf if kind.startswith("clipped") else iteration + WARNING_INTERVAL
                self._say(f"WARNING: {text}")
                self._quarantined = 0.0 if kind == "quarantined" else self._quarantined

    def _problems(
        self, iteration: float, metrics: Mapping[str, float], takeovers: Sequence[Takeover]
    ) -> dict[str, str]:
        """Problems of an iteration in words, by kind."""
        config, found, now = self._config, dict[str, str](), f"in iteration {iteration:.0f}"
        if (lost := metrics.get("env/overflow", 0.0) / config.steps_per_iteration) > LOST_CONTACTS_LIMIT:
            sizes = {name: getattr(config.env, name, None) for name in ("contacts", "constraints")}
            flags = " ".join(setting(f"env.{name}", 2 * size) for name, size in sizes.items() if size)
            steps = f"in {figure(100 * lost)} % of the environment steps of iteration {iteration:.0f}"
            gone = "contacts or constraints did not fit and were lost: physics is wrong there"
            advice = f"; stop, and resume with {flags}" if flags else ""
            found["lost"] = f"{steps}, {gone}{advice}"
        if self._quarantined:
            since = f"in iterations {self._first:.0f} to {iteration:.0f}" if self._first < iteration else now
            number = "1 simulation" if self._quarantined == 1 else f"{self._quarantined:,.0f} simulations"
            wrong = "went wrong numerically or became impossibly fast and restarted, with reward 0 for that step"
            harm = "a few do no harm, many mean that the physics is unstable"
            found["quarantined"] = f"{since}, {number} {wrong}; {harm}: the first are in diagnostics/fault-*.npz"
        # Normalised together with all others, as the paper's are, advantages of pull rows need not have mean 0.
        weight = metrics.get("pull/weight", 1.0)
        if weight < WEAK_PULL and config.ensemble.advantage_scope != "global":
            low = f"{now} the pull's mean weight was {figure(weight)}, which centred advantages cannot give"
            found["pull"] = f"{low}: something is wrong with them; please report it"
        bound = config.model.max_sigma
        if bound is not None and metrics.get("sigma/policy_0", 0.0) >= 0.99 * bound:
            loud = f"{now} the leader's sigma has reached its bound of {bound:g} (--model.max-sigma)"
            cause = "it is paid for noise more than for what it learns"
            found["noise"] = f"{loud}: {cause}; lower --update.entropy-coef or entropy-scale"
        for kind in ("observations", "returns"):
            if metrics.get(f"clipped/{kind}", 0.0) and f"clipped/{kind}" not in self._next:
                found[f"clipped/{kind}"] = (
                    f"{now}, {metrics[f'clipped/{kind}']:,.0f} of the {kind} lay over {LIMIT:g} deviations away"
                    f"{self._furthest(kind)}; statistics take them as that far, so that one does not drown all others. "
                    f"Later ones are counted as clipped/{kind} without a word"
                )
        if self._at_bound >= LONG_AT_BOUND:
            found["rate"] = self._why_at_bound(metrics)
        if broken := next((one for one in takeovers if math.isnan(one.objective)), None):
            copied = f"member {broken.member} was not finite and was replaced by a copy of member {broken.donor}"
            cause = "the cause is a reward or an observation that is not finite, or a learning rate too high"
            found["broken"] = f"after iteration {iteration:.0f}, {copied}; {cause}"
        return found

    def _why_at_bound(self, metrics: Mapping[str, float]) -> str:
        """Why the KL rule holds the learning rate at a bound, and what to change."""
        rate, kl, own = metrics["lr"], metrics["kl/rate"], metrics["kl/own"]
        said = f"the learning rate has been at its bound of {rate:g} for {self._at_bound} iterations: "
        if rate > LOWEST * 1.001:
            return said + f"policies move by a KL of {figure(kl)} only; widen --update.clip, or take more minibatches"
        if own < 0.5 * kl:
            said += f"the KL rule sees {figure(kl)}, of which own rows have {figure(own)}"
            return f"{said}; it takes the distance between policies for a step, and --update.kl-rows own does not"
        return said + f"policies move by a KL of {figure(kl)}; raise --update.kl-threshold, or try fewer minibatches"

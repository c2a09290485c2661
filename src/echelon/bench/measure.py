"""Measure an iteration as a whole, then its parts alone, on the data of the last rollout.

A part inside a graph cannot be timed from outside. So physics, the task, the policy, and the pieces of a gradient step
run again by themselves, as graphs of their own; the remainder of a whole is listed as its rest. Parts that run
alone find other data in the caches, so a rest can be slightly off.
"""

import dataclasses
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from echelon.config import TrainConfig, to_dict
from echelon.config.checks import choose_device
from echelon.console.wording import count, text_table
from echelon.device.capture import Captured
from echelon.diagnostics import measure as measure_distances
from echelon.envs.contract import Capturable, Simulated
from echelon.ranks import ALONE, Ranks
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import RunWriter
from echelon.tasks import maker
from echelon.training.setup import as_seen, make_trainer, set_up_torch
from echelon.training.trainer import Trainer

WARM_UPS = 3
"""Calls before the clock starts: one plain, one recorded, one replayed."""


@dataclass
class Clock:
    """Median milliseconds of repeated calls. On CUDA the work is captured as a graph, if training does so."""

    device: torch.device
    generators: Sequence[torch.Generator]
    repeats: int
    capture: bool
    mode: Literal["global", "thread_local"] = "global"
    """That of `Captured`."""

    def milliseconds(self, run: Callable[[], object], around: Any = nullcontext) -> float:
        """Median milliseconds of a captured call. `around` is entered while it is captured."""
        captured = Captured(run, self.device, self.generators, around, enabled=self.capture, mode=self.mode)
        for _ in range(WARM_UPS):
            captured()
        return statistics.median(self.once(captured) for _ in range(self.repeats))

    def once(self, run: Callable[[], object]) -> float:
        """Milliseconds of one call, with the device idle before and after it."""
        began = self._now()
        run()
        return 1000 * (self._now() - began)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def synchronisations(run: Callable[[], object], device: torch.device) -> int | None:
    """How often the host waits for the device in `run`, as far as torch notices; None on a CPU."""
    if device.type != "cuda":
        return None
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    # enabling the mode emits a warning too, which does not count
    return sum("called a synchronizing CUDA operation" in str(warning.message) for warning in noticed)


@dataclass(frozen=True)
class Bench:
    """Milliseconds of an iteration and of its parts; `update/forward` is a part of `update`."""

    config: TrainConfig
    device: str
    iteration: float
    parts: dict[str, float]
    memory: int | None
    """Bytes that torch, Warp and graphs take of the device; None on a CPU."""
    synchronisations: int | None
    """Times the host waits for the device in an iteration; None on a CPU."""
    ranks: Sequence[tuple[float, int | None]] = ()
    """Iteration and memory of each rank, if there are several; all other figures are rank 0's."""

    def rate(self, milliseconds: float | None = None) -> float:
        """Environment steps per second of training, or if an iteration took another time."""
        return 1000 * self.config.steps_per_iteration / (milliseconds or self.iteration)

    @property
    def physics_rate(self) -> float | None:
        """Control steps per second of the rollout's physics alone; None without an engine."""
        physics = self.parts.get("collect/physics")
        return self.rate(physics) if physics else None

    def table(self) -> str:
        """Lines of text: milliseconds, share of the iteration, and the rate of this part alone."""
        rows = []
        for name, ms in {**self.parts, "iteration": self.iteration}.items():
            label = "  " * name.count("/") + name.rpartition("/")[2]
            rows.append((label, f"{ms:.2f}", f"{ms / self.iteration:.1%}", count(self.rate(ms)) if ms else "-"))
        lines = [text_table(rows, ("", "ms", "share", "steps/s"), right=(1, 2, 3))]
        if self.physics_rate is not None:
            lines.append(f"training runs at {self.rate() / self.physics_rate:.0%} of the rate of physics alone")
        if self.memory is not None:
            lines.append(f"{self.memory / 2**30:.1f} GiB on the device")
        if self.synchronisations is not None:
            times = "once" if self.synchronisations == 1 else f"{self.synchronisations} times"
            lines.append(f"the host waits for the device {times} in an iteration")
        for rank, (ms, memory) in enumerate(self.ranks):
            room = "" if memory is None else f", {memory / 2**30:.1f} GiB"
            lines.append(f"rank {rank}: {ms:.2f} ms, {count(self.rate(ms) / len(self.ranks))} steps/s{room}")
        return "\n".join(lines)

    def document(self) -> str:
        """JSON of everything that was measured, with the settings."""
        config, ranks = self.config, [{"iteration_ms": ms, "memory_bytes": memory} for ms, memory in self.ranks]
        figures = {name: getattr(config, name) for name in ("task", "algo", "num_envs")} | {"device": self.device}
        figures |= {"iteration_ms": self.iteration, "parts_ms": self.parts, "steps_per_s": self.rate()}
        figures |= {"physics_steps_per_s": self.physics_rate, "memory_bytes": self.memory}
        figures |= {"synchronisations": self.synchronisations, "ranks": ranks, "config": to_dict(config)}
        return json.dumps(figures, indent=2) + "\n"


def bench(config: TrainConfig, iterations: int, say: Callable[[str], None], ranks: Ranks = ALONE) -> Bench:
    """Train for some iterations and measure. Nothing is saved."""
    set_up_torch(config)
    device = ranks.device(choose_device(config.device).type)
    cuda = device.type == "cuda"
    ranks.connect(device)
    free = torch.cuda.mem_get_info(device)[0] if cuda else 0
    say("building")
    made = maker(config, spread_clocks=True)(config.num_envs // ranks.size, device, ranks.seed(config.seed))
    env = as_seen(made, config)
    trainer = make_trainer(env, config, ranks=ranks)
    generators = [trainer.generator, *([env.generator] if isinstance(env, Capturable) else [])]
    clock = Clock(device, generators, max(3, iterations // 2), config.capture, ranks.capture_mode)
    times: dict[str, list[float]] = {}
    while not trainer.learns:
        say("collecting until it can learn")
        trainer.iterate()
    for number in range(-WARM_UPS, iterations):
        say(f"iteration {number + 1} of {iterations}" if number >= 0 else "warming up")
        spent = {"iteration": clock.once(trainer.iterate)}  # by the host's clock, and its parts by the device's
        spent |= {name.removeprefix("time/"): 1000 * value for name, value in trainer.timers.metrics().items()}
        for name, value in spent.items() if number >= 0 else ():
            times.setdefault(name, []).append(value)
    times.pop("diagnostics", None)  # most iterations have none: see `_reporting`
    parts = {name: statistics.median(values) for name, values in times.items()}
    whole = parts.pop("iteration")
    waits = synchronisations(trainer.iterate, device)
    memory = free - torch.cuda.mem_get_info(device)[0] if cuda else None
    updating = _updating if trainer.algorithm.off_policy is None else _replaying
    for measure in (_collecting, updating, _reporting):
        say(str(measure.__doc__).rstrip("."))
        parts |= measure(trainer, clock)
    each = ranks.gather((whole, memory)) if ranks.size > 1 else ()
    name = torch.cuda.get_device_name(device) if cuda else "cpu"
    return Bench(config, name, whole, _with_rests(parts), memory, waits, each)


def _collecting(trainer: Trainer, clock: Clock) -> dict[str, float]:
    """Physics, task logic and policy of one rollout."""
    env, collector, rollout = trainer.env, trainer.collector, trainer.collector.rollout
    actions = rollout.action.clone()
    arguments: dict[str, Any] = {"around": env.capturing} if isinstance(env, Capturable) else {}

    def policy() -> None:
        for t in range(rollout.horizon):
            obs = {name: x[t] for name, x in rollout.obs.items()}
            collector.decide(obs, rollout.state[t], torch.randn_like(rollout.action[t]))

    def task() -> None:
        for action in actions:
            env.step(action)

    with torch.inference_mode():
        parts = {"policy": clock.milliseconds(policy)}
        stepping = clock.milliseconds(task, **arguments) if arguments else clock.once(task)
        engine = clock.milliseconds(physics_of(env, actions), **arguments) if isinstance(env, Simulated) else 0.0
    parts |= {"physics": engine, "task logic": max(0.0, stepping - engine)}
    rollouts = trainer.config.update.horizon // rollout.horizon
    return {f"collect/{name}": rollouts * value for name, value in parts.items() if value}


def physics_of(env: Any, actions: Tensor) -> Callable[[], None]:
    """Make the environments' next steps with `actions [H, N, A]`, and return a function that repeats their physics from
    the same states: simulations without the contacts of a rollout would be cheaper."""
    engine, controls = env.engine, []
    qpos, qvel = engine.qpos.clone(), engine.qvel.clone()
    with torch.inference_mode():
        for action in actions:
            env.step(action)
            controls.append(engine.ctrl.clone())

    def repeat() -> None:
        engine.qpos.copy_(qpos)
        engine.qvel.copy_(qvel)
        for control in controls:
            engine.ctrl.copy_(control)
            engine.step(env.substeps)

    return repeat


def _updating(trainer: Trainer, clock: Clock) -> dict[str, float]:
    """The pieces of all gradient steps."""
    update, prepared, rollout = trainer.update, trainer._prepared, trainer.collector.rollout
    assert prepared is not None
    data = update.data(rollout, prepared.targets, prepared.drawn)
    minibatch = next(iter(update.plan.shuffle(prepared.drawn, trainer.generator)))
    gathered = update.gather(data, minibatch)

    def forward() -> torch.Tensor:
        return update.evaluate(data, gathered)[1].total.sum()

    work: dict[str, Callable[[], object]] = {
        "gather": lambda: update.gather(data, minibatch),
        "forward": lambda: forward().detach(),
        "backward": lambda: update.optimizer.backward(forward()),
        "optimizer": lambda: update.optimizer.descend(update.settings.of_networks("grad_norm"), None),
    }
    parts = {name: clock.milliseconds(run) for name, run in work.items()}
    parts["backward"] = max(0.0, parts["backward"] - parts["forward"])
    return {f"update/{name}": trainer.steps_per_iteration * value for name, value in parts.items()}


def _replaying(trainer: Trainer, clock: Clock) -> dict[str, float]:
    """The pieces of all updates from a replay."""
    learner: Any = trainer.update
    pieces, steps = learner.pieces(), trainer.config.update.horizon
    return {f"update/{name}": steps * times * clock.milliseconds(run) for name, (times, run) in pieces.items()}


def _reporting(trainer: Trainer, clock: Clock) -> dict[str, float]:
    """Diagnostics, per iteration, and a line of metrics."""
    config, rollout = trainer.config, trainer.collector.rollout
    parts: dict[str, float] = {}
    if config.diagnostics.every and trainer.layout.policies > 1:
        given = (trainer.model, rollout, trainer.layout, config.diagnostics.states, config.update)
        parts["diagnostics"] = clock.once(lambda: measure_distances(*given)) / config.diagnostics.every
    metrics = {"iteration": trainer.iteration} | trainer.iterate().metrics
    quiet = dataclasses.replace(config, wandb="off")
    with tempfile.TemporaryDirectory() as place, RunWriter(RunFolder(Path(place), quiet)) as log:
        spent = [clock.once(lambda: log.write(metrics)) for _ in range(clock.repeats)]
    return parts | {"logging": statistics.median(spent)}


def _with_rests(parts: dict[str, float]) -> dict[str, float]:
    """List every whole before its parts, the largest first, and their remainder."""
    result: dict[str, float] = {}
    own = "targets and metrics" if "update/critics" in parts else "shuffling, KL and metrics"
    rests = {"collect": "storage and scores", "update": own}
    for whole in (name for name in parts if "/" not in name):
        inner = {name: value for name, value in parts.items() if name.startswith(f"{whole}/")}
        if inner:
            inner[f"{whole}/{rests[whole]}"] = max(0.0, parts[whole] - sum(inner.values()))
        result |= {whole: parts[whole]} | dict(sorted(inner.items(), key=lambda item: -item[1]))
    return result

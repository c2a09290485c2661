"""Measure an iteration as a whole, then its parts alone, on the data of the last rollout.

A part inside a graph cannot be timed from outside. So physics, the task, the policy, and the pieces of a gradient step
are run once more by themselves, as graphs of their own; the remainder of a whole is listed as its rest. Parts that run
alone find other data in the caches, so a rest can be slightly off.
"""

import dataclasses
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from echelon.bench.clock import Clock, memory, synchronisations
from echelon.config import TrainConfig
from echelon.config.checks import choose_device
from echelon.diagnostics.measure import measure as measure_distances
from echelon.envs.contract import Capturable, Simulated
from echelon.ranks import ALONE, Ranks
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import RunWriter
from echelon.tasks import maker
from echelon.training.setup import set_up_torch
from echelon.training.trainer import Trainer

Say = Callable[[str], None]
WARM_UPS = 3
"""Iterations before the clock starts: one plain, one recorded, one replayed."""


@dataclass(frozen=True)
class RankTime:
    """Time and memory of one rank."""

    iteration: float
    """Milliseconds."""
    steps: int
    """Its environment steps of an iteration."""
    memory: int | None

    @property
    def rate(self) -> float:
        """Environment steps per second."""
        return 1000 * self.steps / self.iteration


@dataclass(frozen=True)
class Bench:
    """Milliseconds of an iteration and of its parts; `update/forward` is a part of `update`."""

    config: TrainConfig
    device: str
    iteration: float
    parts: dict[str, float]
    physics_rate: float | None
    """Control steps per second of the rollout's physics alone; None without an engine."""
    memory: int | None
    """Bytes on the device; None on a CPU."""
    synchronisations: int | None
    """Times the host waits for the device in an iteration; None on a CPU."""
    ranks: Sequence[RankTime] = ()
    """Time and memory of each rank, if there are several; all other figures are rank 0's."""

    @property
    def steps(self) -> int:
        """Environment steps of an iteration."""
        return self.config.steps_per_iteration

    @property
    def rate(self) -> float:
        """Environment steps per second of training."""
        return 1000 * self.steps / self.iteration


def bench(config: TrainConfig, iterations: int, say: Say, ranks: Ranks = ALONE) -> Bench:
    """Train for some iterations and measure. Nothing is saved."""
    set_up_torch(config)
    device = ranks.device(choose_device(config.device).type)
    ranks.connect(device)
    held = memory(device)
    say("building")
    env = maker(config, spread_clocks=True)(config.num_envs // ranks.size, device, ranks.seed(config.seed))
    trainer = Trainer(env, config, ranks=ranks)
    for number in range(WARM_UPS):
        say(f"iteration {number + 1} of {WARM_UPS}, not timed")
        trainer.iterate()
    generators = [trainer.generator, *([env.generator] if isinstance(env, Capturable) else [])]
    clock = Clock(device, generators, max(3, iterations // 2), capture=config.capture, mode=ranks.capture_mode)
    whole, parts = _iterations(trainer, clock, iterations, say)
    waits = synchronisations(trainer.iterate, device)
    used = memory(device)
    say("physics, task and policy")
    parts |= _collecting(trainer, clock)
    say("gather, forward, backward, optimizer")
    parts |= _updating(trainer, clock)
    say("diagnostics and logging")
    parts |= _reporting(trainer, clock)
    physics = parts.get("collect/physics")
    rate = 1000 * config.steps_per_iteration / physics if physics else None
    taken = used - held if used is not None and held is not None else None
    each = ranks.gather(RankTime(whole, config.steps_per_iteration // ranks.size, taken)) if ranks.size > 1 else ()
    return Bench(config, _named(device), whole, _with_rests(parts), rate, taken, waits, each)


def _iterations(trainer: Trainer, clock: Clock, iterations: int, say: Say) -> tuple[float, dict[str, float]]:
    """Median of whole iterations by the host's clock, and of their parts by the device's."""
    whole: list[float] = []
    parts: dict[str, list[float]] = {}
    for number in range(iterations):
        say(f"iteration {number + 1} of {iterations}")
        whole.append(clock.once(trainer.iterate))
        for name, value in trainer.timers.metrics().items():
            parts.setdefault(name.removeprefix("time/"), []).append(1000 * value)
    parts.pop("diagnostics")  # most iterations have none: see `_reporting`
    return statistics.median(whole), {name: statistics.median(values) for name, values in parts.items()}


def _collecting(trainer: Trainer, clock: Clock) -> dict[str, float]:
    """Physics, task logic and policy of one rollout."""
    env = trainer.env
    collector, rollout = trainer.collector, trainer.collector.rollout
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
    return {f"collect/{name}": value for name, value in parts.items() if value}


def physics_of(env: Any, actions: Tensor) -> Callable[[], None]:
    """Make the environments' next steps with `actions [H, N, A]`, and return a function that repeats their physics.

    It starts from the same states and sets the same controls, so it has the contacts of a rollout: simulations left to
    themselves come to rest, which is cheaper.
    """
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
    clip = update.settings.of_networks("grad_norm")

    def forward() -> torch.Tensor:
        return update.evaluate(data, gathered)[1].total.sum()

    both = clock.milliseconds(lambda: update.optimizer.backward(forward()))
    parts = {
        "gather": clock.milliseconds(lambda: update.gather(data, minibatch)),
        "forward": clock.milliseconds(lambda: forward().detach()),
        "optimizer": clock.milliseconds(lambda: update.optimizer.descend(clip, None)),
    }
    parts["backward"] = max(0.0, both - parts["forward"])
    return {f"update/{name}": trainer.steps_per_iteration * value for name, value in parts.items()}


def _reporting(trainer: Trainer, clock: Clock) -> dict[str, float]:
    """Diagnostics, per iteration, and a line of metrics."""
    config, layout = trainer.config, trainer.layout
    parts: dict[str, float] = {}
    every = config.diagnostics.every
    if every and layout.policies > 1:
        rollout = trainer.collector.rollout
        states = config.diagnostics.states
        spent = clock.once(lambda: measure_distances(trainer.model, rollout, layout, states, config.update))
        parts["diagnostics"] = spent / every
    metrics = {"iteration": trainer.iteration} | trainer.iterate().metrics
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place), dataclasses.replace(config, wandb="off"))
        with RunWriter(folder) as log:
            parts["logging"] = clock.typical(lambda: log.write(metrics))
    return parts


def _with_rests(parts: dict[str, float]) -> dict[str, float]:
    """List every whole before its parts, the largest first, and their remainder."""
    result: dict[str, float] = {}
    names = {"collect": "storage and scores", "update": "shuffling, KL and metrics"}
    for name in (name for name in parts if "/" not in name):
        result[name] = parts[name]
        inner = {key: value for key, value in parts.items() if key.startswith(f"{name}/")}
        if inner:
            inner[f"{name}/{names[name]}"] = max(0.0, parts[name] - sum(inner.values()))
        result |= dict(sorted(inner.items(), key=lambda item: -item[1]))
    return result


def _named(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"

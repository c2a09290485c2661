"""What ranks are asked to do in tests, in processes of their own."""

import os
import signal
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rollout.stub_env import DriftEnv
from torch import Tensor

from echelon.bench.measure import bench
from echelon.bench.table import table
from echelon.config import ModelConfig, TrainConfig
from echelon.console.view import NullView, Preempted
from echelon.envs.contract import Step
from echelon.errors import SaidElsewhere, UserError
from echelon.ranks import ALONE
from echelon.ranks.together import Together
from echelon.runs import checkpoint
from echelon.tasks import preset
from echelon.tasks.allegro_kuka.reward import Tolerance
from echelon.tasks.allegro_kuka.settings import AllegroKukaConfig
from echelon.training import agreement, loop
from echelon.training.loop import train
from echelon.training.resolve import resolve
from echelon.training.trainer import Iteration, Trainer


class Listener(NullView):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)

    def update(self, metrics: Mapping[str, float]) -> None:
        self.last = dict(metrics)


def drifting(num_envs: int, device: torch.device, seed: int) -> DriftEnv:
    return DriftEnv(num_envs, seed)


def ended(act: Any) -> str:
    """How something ended: in words for the user, without a word, or well."""
    try:
        act()
    except SaidElsewhere:
        return "silent"
    except UserError as error:
        return str(error)
    except Preempted:
        return "preempted"
    return "well"


def run(config: TrainConfig) -> list[str]:
    """Train, or go on; what is said."""
    listener = Listener()
    train(resolve(config, ranks=Together()), listener, drifting)
    return listener.said


def run_alone(config: TrainConfig) -> list[str]:
    """The same in the process of rank 0 alone, which has the lock."""
    listener = Listener()
    if Together().first:
        train(resolve(config, ranks=ALONE), listener, drifting)
    return listener.said


def benched() -> str:
    """The table that rank 0 prints."""
    ranks = Together()
    config = replace(preset("DeceptiveReach"), num_envs=24, device="cpu", model=ModelConfig(hidden=(8,)))
    found = bench(resolve(config, ranks=ranks).config, 1, lambda text: None, ranks)
    assert [share.steps for share in found.ranks] == [12 * config.update.horizon] * 2
    return table(found) if ranks.first else ""


class Evicted(DriftEnv):
    """One rank's machine is taken away in the fifth step."""

    def step(self, action: Tensor) -> Step:
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps == 5 and Together().rank == 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        return super().step(action)


def evicted(config: TrainConfig) -> str:
    build = lambda n, device, seed: Evicted(n, seed)  # noqa: E731
    return ended(lambda: train(resolve(config, ranks=Together()), NullView(), build))


def broken(config: TrainConfig) -> str:
    """All environments return rewards of a wrong shape."""

    class Broken(DriftEnv):
        def step(self, action: Tensor) -> Step:
            return replace(super().step(action), reward=torch.zeros(1))

    return ended(lambda: train(resolve(config, ranks=Together()), NullView(), lambda n, device, seed: Broken(n, seed)))


def other_seed(config: TrainConfig) -> str:
    ranks = Together()
    unlike = replace(config, seed=ranks.rank)
    return ended(lambda: agreement.require_alike(ranks, unlike, torch.device("cpu")))


def other_code(config: TrainConfig) -> str:
    ranks = Together()
    with patch.object(agreement, "_code", lambda: str(ranks.rank)):
        return ended(lambda: agreement.require_alike(ranks, config, torch.device("cpu")))


def other_folder(config: TrainConfig, place: Path) -> str:
    """A relative path, on machines with other current directories."""
    ranks = Together()
    here = place / str(ranks.rank)
    here.mkdir(exist_ok=True)
    with chdir(here), patch.object(agreement, "PATIENCE_S", 0.2):
        return ended(lambda: train(resolve(config, ranks=ranks), NullView(), drifting))


def one_mistake() -> list[str]:
    """Of the last rank only: by both ways to find out."""
    ranks = Together()

    def act() -> int:
        if ranks.rank == ranks.size - 1:
            raise UserError("it is full")
        return 0

    return [ended(lambda: ranks.attempt(act)), ended(lambda: ranks.agree(act))]


def answers() -> list[int]:
    ranks = Together()
    return [ranks.agree(lambda: ranks.rank), ranks.agree(lambda: 3 - ranks.rank)]


def curriculum(successes: Tensor, steps: int) -> list[float]:
    """The tolerance after each of some steps, of which every rank knows its share of the successes `[R, steps, n]`."""
    ranks = Together()
    tolerance = Tolerance(AllegroKukaConfig(tolerance_interval=2), torch.device("cpu"))
    tolerance.mean_of_ranks = ranks.mean
    seen = []
    for t in range(steps):
        tolerance.advance(successes[ranks.rank, t])
        seen.append(tolerance.value.item())
    return seen


def compiled() -> tuple[float, float]:
    """A loss with an exchange in its middle, compiled in one piece; its value and gradient."""
    ranks = Together()

    def loss(x: Tensor) -> Tensor:
        return x * ranks.mean(x.detach()) + ranks.max(x.detach())

    x = torch.tensor(2.0 + ranks.rank, requires_grad=True)
    value = torch.compile(loss, fullgraph=True, backend="aot_eager")(x)
    value.backward()
    assert x.grad is not None
    return value.item(), x.grad.item()


def moments() -> tuple[Tensor, Tensor]:
    """Of numbers far from zero: rank r has 1e6 + (10 r, ..., 10 r + 9)."""
    ranks = Together()
    x = 1e6 + 10.0 * ranks.rank + torch.arange(10.0, dtype=torch.float64)
    return ranks.var_mean(x[:, None], (0,))


def run_slowly(config: TrainConfig) -> list[int]:
    """Train while a minute passes on rank 0 with every iteration, and none elsewhere; iterations that were saved."""
    now, iterate = [0.0], Trainer.iterate_each

    def slowly(trainer: Trainer) -> list[Iteration]:
        now[0] += 60 * trainer.ranks.first
        return iterate(trainer)

    with patch.object(Trainer, "iterate_each", slowly), patch.object(loop, "monotonic", lambda: now[0]):
        folder = train(resolve(config, ranks=Together()), NullView(), drifting)
    return checkpoint.saved_iterations(folder)

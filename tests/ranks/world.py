"""Processes that stay and train one case after another together, and one process that does the same alone."""

import math
import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from ranks.left_out import LEFT_OUT
from rollout.stub_env import DriftEnv
from tiny import PATIENCE
from torch import Tensor

from echelon.algorithms import complete
from echelon.config import TrainConfig
from echelon.ranks import ALONE
from echelon.ranks.together import Together
from echelon.rollout.layout import Layout
from echelon.training.trainer import Trainer, make_layout

ITERATIONS = 6


class World:
    """R processes, joined by gloo. Each call runs one function on all of them and returns what each returned."""

    def __init__(self, size: int, place: Path) -> None:
        fork = multiprocessing.get_context("fork")
        self.size = size
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(size):
            ours, theirs = fork.Pipe()
            process = fork.Process(target=_serve, args=(theirs, rank, size, place / "meet"), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __call__(self, act: Callable[..., Any], *arguments: Any) -> list[Any]:
        for pipe in self._pipes:
            pipe.send((act, arguments))
        answers = [pipe.recv() if pipe.poll(PATIENCE) else f"no answer within {PATIENCE} s" for pipe in self._pipes]
        problems = [answer for answer in answers if isinstance(answer, str)]
        assert not problems, "\n".join(problems)
        return [answer[0] for answer in answers]

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(10)
            process.kill()


def _serve(pipe: Connection, rank: int, size: int, meet: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=size)
    while True:
        if (asked := pipe.recv()) is None:
            return
        act, arguments = asked
        try:
            pipe.send([act(*arguments)])
        except BaseException:
            pipe.send(f"rank {rank}: {traceback.format_exc()}")


@contextmanager
def in_double() -> Iterator[None]:
    """Everything that is made meanwhile is float64."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@dataclass
class Trained:
    """What is left of a run, and its metrics."""

    state: dict[str, Tensor]
    metrics: list[dict[str, float]]
    kl: list[list[list[float]] | None]
    takeovers: int

    def differs(self, other: "Trained") -> list[str]:
        """Names of metrics that differ by more than float32 rounds."""
        pairs = zip(self.metrics, other.metrics, strict=True)
        wrong = {name for a, b in pairs for name in a.keys() | b.keys() if not _close(a.get(name), b.get(name))}
        return sorted(wrong | ({"kl matrix"} if not _close(self.kl, other.kl) else set()))

    def apart(self, other: "Trained") -> float:
        """The largest difference between what two runs have learned, relative to the tensor it is in."""
        assert self.state.keys() == other.state.keys()
        found = [
            float((x - other.state[name]).abs().max() / (1 + x.abs().max()))
            for name, x in self.state.items()
            if x.numel()
        ]
        assert all(x == x for x in found)
        return max(found)


def train_together(config: TrainConfig, left_out: str = "nothing") -> Trained:
    """This rank's part of a run, perhaps with something that it forgets to exchange."""
    with in_double(), patch(*LEFT_OUT[left_out]):
        ranks = Together()
        mine = places(make_layout(complete(config), ranks=ALONE), ranks.size)[ranks.rank]
        return trained(Trainer(drift(mine), config, ranks=ranks))


def train_alone(config: TrainConfig, size: int) -> Trained:
    """The same run in one process: with all environments, and with the random numbers that the ranks would draw."""
    with in_double():
        layout = make_layout(complete(config))
        trainer = Trainer(drift(torch.arange(config.num_envs)), config)
        ranks = [_Member(size, rank) for rank in range(size)]
        chance = Chance(
            trainer,
            [Trainer(drift(mine), config, ranks=rank) for mine, rank in zip(places(layout, size), ranks, strict=True)],
        )
        trainer.common = torch.Generator().manual_seed(config.seed)
        trainer.generator = trainer.collector.generator = chance  # pyright: ignore[reportAttributeAccessIssue]
        trainer.plan._orders = chance.orders  # pyright: ignore[reportAttributeAccessIssue]
        with (
            patch.object(torch, "randn", chance.instead_of(torch.randn, chance.noise)),
            patch.object(torch, "rand", chance.instead_of(torch.rand, chance.discriminator_order)),
        ):
            return trained(trainer)


def drift(index: Tensor) -> DriftEnv:
    """Environments of these numbers, whose courses depend on nothing else."""
    env = DriftEnv(len(index), noise=False, critic=True)
    env.index = index.to(torch.get_default_dtype())
    return env


def trained(trainer: Trainer) -> Trained:
    # Policies that differ by more than their vectors.
    trainer.model.log_std.data.normal_(-0.3, 0.2, generator=torch.Generator().manual_seed(1))
    results = [trainer.iterate() for _ in range(ITERATIONS)]
    takeovers = sum(len(result.takeovers) for result in results)
    return Trained(
        _flat(trainer.learned()), [result.metrics for result in results], [x.kl_matrix for x in results], takeovers
    )


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_close, a, b))
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6) or (math.isnan(a) and math.isnan(b)) or a == b


def _flat(value: Any, name: str = "") -> dict[str, Tensor]:
    if isinstance(value, Tensor):
        return {name: value.detach().double().clone()} if value.is_floating_point() else {}
    if isinstance(value, dict):
        return {k: x for key, item in value.items() for k, x in _flat(item, f"{name}/{key}").items()}
    return {}


def places(whole: Layout, size: int) -> list[Tensor]:
    """Of each rank the numbers of its environments among those of the whole run."""
    part = whole.divided(_Member(size, 0))
    found = []
    for rank in range(size):
        blocks = []
        for policy in range(whole.policies):
            n = part.sizes[policy % whole.each]
            first = whole.environments(policy).start + rank * n
            blocks.append(torch.arange(first, first + n))
        found.append(torch.cat(blocks))
    return found


class _Member(type(ALONE)):
    """A rank only in name, to draw its random numbers; it exchanges nothing."""

    seed = Together.seed

    def __init__(self, size: int, rank: int) -> None:
        self.size, self.rank = size, rank


class Chance:
    """The random numbers of all ranks, in the places that they have in the whole run."""

    def __init__(self, whole: Trainer, parts: Sequence[Trainer]) -> None:
        self.whole, self.parts = whole, parts
        self.each = (self,)  # as generators of several runs have; here it is one
        self.places = places(whole.layout, len(parts))

    def instead_of(self, draw: Callable[..., Tensor], ours: Callable[[Sequence[int]], Tensor]) -> Callable[..., Tensor]:
        """`draw`, but for those who ask for these random numbers."""

        def either(*shape: Any, generator: Any = None, **options: Any) -> Tensor:
            return ours(shape[0]) if generator is self else draw(*shape, generator=generator, **options)

        return either

    def noise(self, shape: Sequence[int]) -> Tensor:
        """`[N, A]`, of actions."""
        noise = torch.empty(shape)
        for part, place in zip(self.parts, self.places, strict=True):
            noise[place] = torch.empty(len(place), shape[1]).normal_(generator=part.generator)
        return noise

    def discriminator_order(self, shape: Sequence[int]) -> Tensor:
        """Numbers `[G, T·n]` whose order is that in which the discriminator sees rows: of each minibatch the ranks'
        one after another."""
        networks, total = shape
        extra, horizon = self.whole.extra_reward, self.whole.config.update.horizon
        minibatches, width = extra.minibatches, total // horizon
        by_rank = []
        for part, place in zip(self.parts, self.places, strict=True):
            keys = torch.empty(networks, total // len(self.parts)).uniform_(generator=part.generator)
            order = keys.argsort(dim=1)
            n = order.shape[1] // horizon  # environments of a network
            assert networks == 1
            step, env = order // n, place[order % n]
            by_rank.append((step * width + env).chunk(minibatches, dim=1))
        order = torch.cat([rows for k in range(minibatches) for rows in (each[k] for each in by_rank)], dim=1)
        return torch.empty(shape).scatter_(1, order, torch.arange(float(total)).expand(shape))

    def orders(self, generator: object) -> list[Tensor]:
        """For each policy the order of its units `[G, minibatches, n]`: of each minibatch the ranks' one after another,
        and first of all what they lend."""
        whole, parts = self.whole.plan, [part.plan for part in self.parts]
        drawn = [plan._orders(part.generator) for plan, part in zip(parts, self.parts, strict=True)]
        part = max((block.group.part(whole.layout.each) for block in whole.pairs), default=1)
        orders = []
        for policy, size in enumerate(whole.layout.sizes):
            heads, tails = [], []
            for rank, (plan, order) in enumerate(zip(parts, drawn, strict=True)):
                mine = plan.layout.sizes[policy]
                unit = order[policy] // mine * size + rank * mine + order[policy] % mine
                lent = unit.shape[2] // part
                heads.append(unit[..., :lent])
                tails.append(unit[..., lent:])
            orders.append(torch.cat((*heads, *tails), dim=2))
        return orders

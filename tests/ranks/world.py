"""Processes that stay and train one case after another together, and one process that does the same alone.

At the end, statistics that ranks could forget to exchange."""

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from rollout.stub_env import DriftEnv
from tiny import PATIENCE
from torch import Tensor

from echelon.algorithms import complete
from echelon.config import TrainConfig
from echelon.diagnostics import ess_rate
from echelon.learning import targets
from echelon.models.actor_critic import ActorCritic
from echelon.ranks import ALONE, Ranks
from echelon.ranks.together import Together
from echelon.rollout.episodes import Episodes
from echelon.rollout.layout import Layout
from echelon.runs.checkpoint import tensors_of
from echelon.training.trainer import Trainer, make_layout

ITERATIONS = 5


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
    metrics: list[dict[str, Any]]
    takeovers: int

    def differs(self, other: "Trained") -> set[str]:
        """Names of metrics that differ by more than float32 rounds."""
        pairs = list(zip(self.metrics, other.metrics, strict=True))
        assert all(ours.keys() == theirs.keys() for ours, theirs in pairs)
        close = {"rel": 1e-5, "abs": 1e-6, "nan_ok": True}
        return {name for ours, theirs in pairs for name in ours if ours[name] != pytest.approx(theirs[name], **close)}

    def apart(self, other: "Trained") -> float:
        """The largest difference between what two runs have learned, relative to the tensor it is in."""
        assert self.state.keys() == other.state.keys()
        pairs = [(x, other.state[name]) for name, x in self.state.items() if x.numel()]
        found = [float((x - y).abs().max() / (1 + x.abs().max())) for x, y in pairs]
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
    matrices = ({f"kl matrix {i}": row for i, row in enumerate(one.kl_matrix or ())} for one in results)
    metrics = [one.metrics | matrix for one, matrix in zip(results, matrices, strict=True)]
    learned = {name: x.double().clone() for name, x in tensors_of(trainer.learned()) if x.is_floating_point()}
    return Trained(learned, metrics, sum(len(one.takeovers) for one in results))


def places(whole: Layout, size: int) -> list[Tensor]:
    """For each rank, the numbers of its environments within the whole run."""
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


MERGE, OBJECTIVE, METRICS = ActorCritic.merge_observations, Episodes.objective, Episodes.metrics
MERGE_VALUES, CENTRE, MEAN = targets.merge_values, targets._centre, Together.mean


def alone(function: Any) -> Any:
    """A method of episodes, as if this rank were alone."""

    def forgets(self: Episodes, *arguments: Any) -> Any:
        ranks, self.layout.ranks = self.layout.ranks, ALONE
        try:
            return function(self, *arguments)
        finally:
            self.layout.ranks = ranks

    return forgets


LEFT_OUT: dict[str, tuple[str, Any]] = {
    "nothing": ("echelon.ranks.together.Together.first", Together.first),
    "gradient": ("echelon.ranks.together.Together.mean_with", lambda self, _, rider: self.mean(rider)),
    "KL of the rate rule": ("echelon.ranks.together.Together.mean_with", lambda self, x, rider: self.mean_(x) or rider),
    "advantage moments": ("echelon.ranks.together.Together.std_mean", Ranks.std_mean),
    "centres of advantages": ("echelon.learning.targets._centre", lambda x, ranks: CENTRE(x, ALONE)),
    "value normaliser": ("echelon.learning.update.merge_values", lambda n, v, r, ranks: MERGE_VALUES(n, v, r)),
    "observation normaliser": (
        "echelon.models.actor_critic.ActorCritic.merge_observations",
        lambda self, obs, ranks: MERGE(self, obs),
    ),
    "drawn follower": ("echelon.ranks.together.Together.common_generator", lambda self, own, seed, device: own),
    "mean weight of the pull": ("echelon.learning.batch.Batch.ranks", ALONE),
    "gradient of the discriminator": (
        "echelon.learning.optimizer.Adam.step",
        lambda self, loss: self.backward(loss) or self.descend(),
    ),
    "objectives of a population": (  # float32 also in runs in float64, as scores and metrics are, and nothing else is
        "echelon.ranks.together.Together.mean",
        lambda self, x: x if x.dtype is torch.float32 else MEAN(self, x),
    ),
    "best of a population": ("echelon.rollout.episodes.Episodes.objective", alone(OBJECTIVE)),
    "scores of episodes": ("echelon.rollout.episodes.Episodes.metrics", alone(METRICS)),
    "ESS of the diagnostics": ("echelon.diagnostics.ess_rate", lambda log_w, ranks: ess_rate(log_w)),
}
"""By name, the function in question and one that forgets."""

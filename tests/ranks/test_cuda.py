"""Exchanges inside a CUDA graph, with a NCCL communicator of one rank: one GPU is enough to record and replay them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from gpu import MARKS
from tiny import build, unfused

from echelon.algorithms import AdversaryConfig, PullConfig
from echelon.config import EnsembleConfig, TrainConfig
from echelon.ranks import ALONE, Ranks, together
from echelon.ranks.together import Together

pytestmark = MARKS
CASES = {
    "ppo": {},
    "sapg": {"ensemble": EnsembleConfig(borrow_from="all", advantage_scope="policy"), "num_envs": 210},
    "cpo": {"pull": PullConfig(normalise=True), "adversary": AdversaryConfig(coef=0.01, hidden=(32,))},
    "pbt": {},
}


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Together]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    ranks = Together()
    ranks.connect(torch.device("cuda", 0))
    yield ranks
    together._groups.clear()
    dist.destroy_process_group()


def small(algo: str, lstm: int = 0, **changes: object) -> TrainConfig:
    return unfused("DeceptiveReach", algo, lstm, **{"device": "cuda", "precision": "fp32"} | CASES[algo] | changes)


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize(("algo", "lstm"), [("ppo", 0), ("sapg", 0), ("cpo", 16), ("pbt", 0)])
def test_a_recorded_exchange_equals_a_plain_one(
    algo: str, lstm: int, fuse: bool, ranks: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five iterations of both; in the last ones the host exchanges nothing, the graph does."""
    config = small(algo, lstm, fuse=fuse)
    plain, recorded = (build(replace(config, capture=capture), "cuda:0", ranks) for capture in (False, True))
    calls = 0
    reduce = dist.all_reduce

    def counted(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        return reduce(*arguments, **options)

    for number in range(5):
        expected = plain.iterate().metrics
        with monkeypatch.context() as patch:
            patch.setattr(dist, "all_reduce", counted)
            calls = 0
            found = recorded.iterate().metrics
        assert (calls > recorded.steps_per_iteration) == (number < 2), "as it is, recorded, then replayed"
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5, nan_ok=True)
    torch.testing.assert_close(*(dict(x.model.named_parameters()) for x in (recorded, plain)), rtol=1e-3, atol=1e-4)


def test_the_host_still_reads_once(ranks: Together) -> None:
    trainer = build(small("cpo"), "cuda:0", ranks)
    for _ in range(3):
        trainer.iterate()
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer._collect()
        trainer._prepared = trainer._prepare()
        trainer._learn()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_one_rank_learns_what_a_process_alone_learns(ranks: Together, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same random numbers; what one draws alike with others it draws from its own generator here."""
    monkeypatch.setattr(Together, "seed", Ranks.seed)
    monkeypatch.setattr(Together, "common_generator", Ranks.common_generator)
    one, alone = (build(small("cpo"), "cuda:0", who) for who in (ranks, ALONE))
    for _ in range(4):
        found, expected = one.iterate().metrics, alone.iterate().metrics
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5, nan_ok=True)

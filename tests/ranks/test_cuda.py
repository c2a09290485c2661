"""Exchanges inside a CUDA graph, with a NCCL communicator of one rank: one GPU is enough to record and replay them."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from gpu import MARKS

from echelon.algorithms.cpo_settings import AdversaryConfig, PullConfig
from echelon.config import EnsembleConfig, ModelConfig, TrainConfig
from echelon.ranks import ALONE, Ranks, together
from echelon.ranks.together import Together
from echelon.tasks import make, preset
from echelon.training.trainer import Trainer

pytestmark = MARKS
CASES = {
    "ppo": {},
    "sapg": {
        "ensemble": EnsembleConfig(borrow_from="all", advantage_scope="policy"),
        "num_envs": 210,
    },
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


def small(algo: str, lstm: int, **changes: object) -> TrainConfig:
    model = ModelConfig(hidden=(32, 32), lstm=lstm)
    config = dataclasses.replace(preset("DeceptiveReach"), algo=algo, num_envs=192, model=model, device="cuda")
    return dataclasses.replace(config, **{"fuse": False, "precision": "fp32"} | CASES[algo] | changes)


def build(config: TrainConfig, ranks: Ranks) -> Trainer:
    where, seed = torch.device("cuda", 0), ranks.seed(config.seed)
    return Trainer(make(config.task, config.env, config.num_envs, where, seed, spread_clocks=True), config, ranks=ranks)


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize(("algo", "lstm"), [("ppo", 0), ("sapg", 0), ("cpo", 16), ("pbt", 0)])
def test_a_recorded_exchange_equals_a_plain_one(
    algo: str, lstm: int, fuse: bool, ranks: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five iterations of both; in the last ones the host exchanges nothing, the graph does."""
    config = small(algo, lstm, fuse=fuse)
    plain, recorded = build(dataclasses.replace(config, capture=False), ranks), build(config, ranks)
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
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-3, abs=1e-5, nan_ok=True), name
    for name, parameter in plain.model.named_parameters():
        torch.testing.assert_close(recorded.model.get_parameter(name), parameter, rtol=1e-3, atol=1e-4, msg=name)


def test_the_host_still_reads_once(ranks: Together) -> None:
    trainer = build(small("cpo", 0), ranks)
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
    one, alone = build(small("cpo", 0), ranks), build(small("cpo", 0), ALONE)
    for _ in range(4):
        found, expected = one.iterate().metrics, alone.iterate().metrics
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-3, abs=1e-5, nan_ok=True), name

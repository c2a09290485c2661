"""Whole runs on two ranks: one folder, one voice, and nothing that a resumed run would have done otherwise."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from chaos.attack import differences
from learning.iteration import small_config
from ranks import acts
from ranks.world import World
from torch.distributed import HashStore

from echelon.config import TrainConfig
from echelon.errors import UserError
from echelon.ranks import Ranks, join, together
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics
from echelon.tasks.allegro_kuka.reward import Tolerance
from echelon.tasks.allegro_kuka.settings import AllegroKukaConfig
from echelon.training.agreement import difference
from echelon.training.resolve import resolve


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(2, tmp_path_factory.mktemp("world"))
    yield world
    world.close()


def config(out: Path, **changes: Any) -> TrainConfig:
    small = replace(small_config("cpo", 3, num_envs=24), task="drift", device="cpu", out=str(out))
    return replace(small, iterations=4, checkpoint_every=2, **changes)


def whole_state(out: Path) -> dict[str, Any]:
    """Of all ranks, with the checksums of what they saved."""
    found = checkpoint.find(RunFolder.open(out))
    assert found is not None
    assert found.ranks == 2
    return {"others": found.body["ranks"], "trainer": found.state["trainer"]}


def test_a_resumed_run_goes_on_to_the_bit_on_every_rank(tmp_path: Path, world: World) -> None:
    world(acts.run, config(tmp_path / "whole"))
    world(acts.run, replace(config(tmp_path / "parts"), iterations=2))
    said, silence = world(acts.run, config(tmp_path / "parts"))
    assert said[0] == f"resumed {tmp_path / 'parts'} after iteration 2"
    assert silence == []
    assert differences(RunFolder.open(tmp_path / "parts"), RunFolder.open(tmp_path / "whole")) == []
    assert whole_state(tmp_path / "parts")["others"] == whole_state(tmp_path / "whole")["others"]
    assert [line["env_steps"] for line in read_metrics(RunFolder.open(tmp_path / "whole"))] == [288, 576, 864, 1152]
    # Ranks differ in their random numbers and in nothing learned.
    found = checkpoint.find(RunFolder.open(tmp_path / "whole"))
    assert found is not None
    ours, theirs = found.of_rank(0), found.of_rank(1)
    assert not ours["generator"].equal(theirs["generator"])
    assert not ours["env"]["x"].equal(theirs["env"]["x"])
    assert set(theirs) == {"collector", "env", "generator", "policy_id"}


def test_another_number_of_ranks_goes_on_learning_and_says_so(tmp_path: Path, world: World) -> None:
    world(acts.run, replace(config(tmp_path / "run"), iterations=2))
    said, _ = world(acts.run_alone, config(tmp_path / "run"))
    assert "2 ranks saved it and one process will train it now, so new episodes start" in said[1]
    said, _ = world(acts.run, replace(config(tmp_path / "run"), iterations=6))
    assert "one process saved it and 2 ranks will train it now" in said[1]
    assert [line["iteration"] for line in read_metrics(RunFolder.open(tmp_path / "run"))] == [1, 2, 3, 4, 5, 6]


def test_a_damaged_part_of_one_rank_makes_the_checkpoint_damaged(tmp_path: Path, world: World) -> None:
    world(acts.run, config(tmp_path / "run"))
    path = tmp_path / "run" / "checkpoints" / "00000004" / "rank-0001.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    said, _ = world(acts.run, config(tmp_path / "run"))
    assert "rank-0001.safetensors does not match its checksum" in said[0]
    assert said[1] == f"resumed {tmp_path / 'run'} after iteration 2"
    path.unlink()
    said, _ = world(acts.run, replace(config(tmp_path / "run"), iterations=5))
    assert "rank-0001.safetensors is missing" in said[0]


def test_a_rank_that_is_told_to_leave_takes_all_with_it_and_all_save(tmp_path: Path, world: World) -> None:
    assert world(acts.evicted, config(tmp_path / "run")) == ["preempted", "preempted"]
    found = checkpoint.find(RunFolder.open(tmp_path / "run"))
    assert found is not None
    assert (found.iteration, found.ranks) == (1, 2)


def test_rank_0_decides_when_it_is_time_to_save(tmp_path: Path, world: World) -> None:
    slow = replace(config(tmp_path / "run"), checkpoint_every=100, checkpoint_minutes=2.0)
    assert world(acts.run_slowly, slow) == [[2, 4]] * 2


def test_a_bench_shows_every_rank(world: World) -> None:
    """Each has half of the environments, and both take as long: they wait for each other."""
    tables, silence = world(acts.benched)
    assert "rank 0: " in tables
    assert "rank 1: " in tables
    assert silence == ""


def test_one_mistake_is_told_once(world: World) -> None:
    assert world(acts.one_mistake) == [["rank 1: it is full"] * 2, ["silent"] * 2]
    assert world(acts.answers) == [[1, 3], [1, 3]]


def test_ranks_with_other_settings_or_code_do_not_begin(tmp_path: Path, world: World) -> None:
    said, silence = world(acts.other_seed, config(tmp_path / "run"))
    assert said.startswith("seed is 1 on rank 1 (on ")
    assert silence == "silent"
    said, silence = world(acts.other_code, config(tmp_path / "run"))
    assert said.startswith("the code of Echelon is 1 on rank 1 (on ")
    assert silence == "silent"


def test_a_folder_that_is_not_shared_is_refused(tmp_path: Path, world: World) -> None:
    said, silence = world(acts.other_folder, config(Path("runs/one")), tmp_path)
    assert said.startswith("runs/one of rank 0 (on ")
    assert "is not there for rank 1" in said
    assert silence == "silent"


class Four(Ranks):
    """Only in name."""

    size = 4


def test_what_ranks_may_differ_in() -> None:
    """In nothing but their machine and their GPU, which each has for itself."""
    first = {"host": "a", "gpu": "gpu-0", "the device": "cuda", "the version of torch": "2.13", "update.clip": 0.2}
    for changes, sentence in (
        ({"host": "b", "gpu": "gpu-1"}, None),
        ({"the device": "cpu", "gpu": None}, "the device is cpu on rank 1 (on a) but cuda on rank 0 (on a); start"),
        ({}, "rank 1 (on a) has no GPU of its own: rank 0 has the same"),
        ({"gpu": "gpu-1", "the version of torch": "2.11"}, "the version of torch is 2.11 on rank 1 (on a) but 2.13"),
        ({"gpu": "gpu-1", "update.clip": 0.1}, "update.clip is 0.1 on rank 1 (on a) but 0.2 on rank 0"),
    ):
        found = difference([first, first | changes])
        assert (found or "").startswith(sentence) if sentence else found is None


def test_environments_and_minibatches_divide_between_ranks(tmp_path: Path) -> None:
    assert resolve(config(tmp_path), ranks=Four()).plan.layout.num_envs == 6
    with pytest.raises(UserError, match=r"27 environments of 3 policies do not divide between 4 ranks.*24 or 36 would"):
        resolve(replace(config(tmp_path), num_envs=27), ranks=Four())
    uneven = replace(config(tmp_path), num_envs=60, envs_per_policy=(36, 12, 12))
    assert resolve(uneven, ranks=Four()).plan.layout.sizes == [9, 3, 3]
    odd = replace(config(tmp_path), update=replace(config(tmp_path).update, minibatches=16))
    with pytest.raises(UserError, match="24 environments of 3 policies do not split into 16 equal minibatches on each"):
        resolve(odd, ranks=Four())


def test_all_ranks_have_one_tolerance(world: World) -> None:
    """Rank 0 alone would shrink it at once, rank 1 never."""
    successes = torch.stack(
        (torch.full((8, 3), 6.0), torch.tensor([-1.0, -1, -1, 0, 0, 0, 0, 0])[:, None].expand(8, 3))
    )
    found = world(acts.curriculum, successes, 8)
    alone = Tolerance(AllegroKukaConfig(tolerance_interval=2), torch.device("cpu"))
    expected = []
    for t in range(8):
        alone.advance(successes[:, t].flatten())
        expected.append(alone.value.item())
    assert found == [expected, expected]
    assert expected[2] == pytest.approx(0.075)
    assert expected[3] == pytest.approx(0.0675)


def test_an_exchange_can_be_compiled(world: World) -> None:
    """x · mean(2, 3) + max(2, 3) at 2 and at 3."""
    assert world(acts.compiled) == [(8.0, 2.5), (10.5, 2.5)]


def test_moments_of_large_numbers_do_not_cancel(world: World) -> None:
    """Of 0 to 19: variance 20·21/12 = 35, mean 9.5."""
    for var, mean in world(acts.moments):
        assert var.item() == pytest.approx(35.0, rel=1e-12)
        assert mean.item() == pytest.approx(1e6 + 9.5, rel=1e-15)


def test_a_mistake_of_all_environments_is_told_once(tmp_path: Path, world: World) -> None:
    said, silence = world(acts.broken, config(tmp_path / "run"))
    assert "reward must have the shape [12], not [1]" in said
    assert silence == "silent"


def test_ranks_that_are_started_again_agree_on_another_name() -> None:
    """On a store in which everything is left that the first start wrote, as torchrun's own is: nobody takes an old
    answer for one of a rank 0 that is not there yet."""
    store, names = HashStore(), []
    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            found = [pool.submit(together.agreed_name, store, rank, 3) for rank in (2, 1)]
            time.sleep(0.05)
            assert not any(one.done() for one in found)
            found.append(pool.submit(together.agreed_name, store, 0, 3))
            (name,) = {one.result(60) for one in found}
            names.append(name)
    assert names[0] != names[1]


def test_a_rank_that_never_comes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "MEETING", timedelta(0))
    with pytest.raises(RuntimeError, match="rank 1 did not answer for"):
        together.agreed_name(HashStore(), 0, 3)


def test_variables_that_make_no_sense_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    for values in ("two 0 0 a 1", "0 0 0 a 1", "² 0 0 a 1", "4", "4 one 0 a 1", "4 4 0 a 1", "4 0 4 a 1", "4 0 0"):
        for name in names:
            monkeypatch.delenv(name, raising=False)
        assert join().size == 1
        for name, value in zip(names, values.split(), strict=False):
            monkeypatch.setenv(name, value)
        with pytest.raises(UserError, match=f"WORLD_SIZE={values.split()[0]}, .* are not as torchrun sets them; start"):
            join()

"""Whole runs on two ranks: one folder, one voice, and nothing that a resumed run would have done otherwise.

Functions that are passed to `world` run on both ranks, in processes of their own.
"""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from chaos.attack import differences
from learning.iteration import small_config
from ranks.world import World
from rollout.stub_env import DriftEnv
from tiny import differing, disturbed
from torch import Tensor
from torch.distributed import HashStore
from training.test_loop import Remember, drift

from echelon.algorithms import SacConfig, with_algorithm
from echelon.bench.measure import bench
from echelon.config import ModelConfig, TrainConfig
from echelon.console.view import NullView, Preempted
from echelon.envs.contract import MakeEnv, Step
from echelon.errors import SaidElsewhere, UserError
from echelon.ranks import ALONE, Ranks, join, together
from echelon.ranks.together import Together
from echelon.runs import checkpoint
from echelon.runs.checkpoint import Checkpoint, tensors_of
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics
from echelon.tasks import preset
from echelon.tasks.allegro_kuka.reward import Tolerance
from echelon.tasks.allegro_kuka.settings import AllegroKukaConfig
from echelon.training import agreement, loop
from echelon.training.loop import train
from echelon.training.resolve import resolve
from echelon.training.setup import make_trainer
from echelon.training.trainer import Iteration, Trainer


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(2, tmp_path_factory.mktemp("world"))
    yield world
    world.close()


def config(out: Path, **changes: Any) -> TrainConfig:
    small = replace(small_config("cpo", 3, num_envs=24), task="drift", device="cpu", out=str(out))
    return replace(small, **{"iterations": 4, "checkpoint_every": 2} | changes)


def newest(out: Path) -> Checkpoint:
    return checkpoint.load(RunFolder.open(out), "newest")


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


def run(config: TrainConfig, ranks: Ranks | None = None) -> list[str]:
    """Train or resume; what is said. `ALONE` is the process of rank 0, which has the lock."""
    view = Remember()
    if ranks is None or Together().first:
        train(resolve(config, ranks=ranks or Together()), view, drift)
    return view.said


def train_and_end(config: TrainConfig, make_env: MakeEnv = drift) -> str:
    return ended(lambda: train(resolve(config, ranks=Together()), NullView(), make_env))


def test_a_resumed_run_continues_to_the_bit_on_every_rank_unless_their_number_is_another(
    tmp_path: Path, world: World
) -> None:
    """Unless a part of one rank is damaged or missing, which makes the whole checkpoint damaged."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    world(run, config(whole))
    world(run, config(parts, iterations=2))
    said, silence = world(run, config(parts))
    assert said[0] == f"resumed {parts} after iteration 2"
    assert silence == []
    assert differences(RunFolder.open(parts), RunFolder.open(whole)) == []
    assert newest(parts).parts[1:] == newest(whole).parts[1:]  # checksums
    assert [line["env_steps"] for line in read_metrics(RunFolder.open(whole))] == [288, 576, 864, 1152]
    # Ranks differ in their random numbers and in nothing learned.
    ours, theirs = newest(whole).of_rank(0), newest(whole).of_rank(1)
    assert not ours["generator"].equal(theirs["generator"])
    assert not ours["env"]["x"].equal(theirs["env"]["x"])
    assert set(theirs) == {"collector", "env", "generator", "policy_id"}

    path = parts / "checkpoints" / "00000004" / "rank-0001.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    said, _ = world(run, config(parts))
    assert "rank-0001.safetensors does not match its checksum" in said[0]
    assert said[1] == f"resumed {parts} after iteration 2"
    path.unlink()
    said, _ = world(run, config(parts, iterations=5))
    assert "rank-0001.safetensors is missing" in said[0]
    world(run, config(tmp_path / "run", iterations=2))
    said, _ = world(run, config(tmp_path / "run"), ALONE)
    assert "2 ranks saved it and one process will train it now, so new episodes start" in said[1]
    said, _ = world(run, config(tmp_path / "run", iterations=6))
    assert "one process saved it and 2 ranks will train it now" in said[1]
    assert [line["iteration"] for line in read_metrics(RunFolder.open(tmp_path / "run"))] == [1, 2, 3, 4, 5, 6]


def replaying(out: Path, iterations: int = 4) -> TrainConfig:
    sac = SacConfig(updates=2, batch=16, warm_up=4, hidden=(8,), critic_width=8, bins=21, save_replay=True)
    return replace(with_algorithm(config(out, policies=1, iterations=iterations), "sac"), sac=sac)  # pyright: ignore


def learned(config: TrainConfig) -> dict[str, Tensor]:
    """What a rank has learned by itself: the first's is copied only before it is saved."""
    ranks = Together()
    trainer = make_trainer(drift(config.num_envs // 2, torch.device("cpu"), ranks.rank), config, ranks=ranks)
    for _ in range(3):
        trainer.iterate()
    return {name: x.clone() for name, x in tensors_of(trainer.learned())}


def test_ranks_with_a_replay_each_learn_the_same_and_resume_to_the_bit(tmp_path: Path, world: World) -> None:
    """Unless their number is another: then the replay fills again, though it was saved."""
    ours, theirs = world(learned, replaying(tmp_path))
    assert differing(ours, theirs) == []
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    world(run, replaying(whole))
    world(run, replaying(parts, 2))
    world(run, replaying(parts))
    for rank in range(2):
        assert differing(newest(whole).of_rank(rank), newest(parts).of_rank(rank)) == []
    said, _ = world(run, replaying(parts, 5), ALONE)
    assert said[2].startswith("the replay is empty (--sac.save-replay saves it, for as many ranks), so 96 environment")


def evicted(num_envs: int, device: torch.device, seed: int) -> DriftEnv:
    """One rank's machine is taken away in the fifth step."""

    def disturb(count: int, step: Step) -> None:
        if count == 5 and Together().rank == 1:
            os.kill(os.getpid(), signal.SIGUSR1)

    return disturbed(DriftEnv(num_envs, seed), disturb)


def run_slowly(config: TrainConfig) -> list[int]:
    """Train while a minute passes on rank 0 with every iteration, and none elsewhere; iterations that were saved."""
    now, iterate = [0.0], Trainer.iterate_each

    def slowly(trainer: Trainer) -> list[Iteration]:
        now[0] += 60 * trainer.ranks.first
        return iterate(trainer)

    with patch.object(Trainer, "iterate_each", slowly), patch.object(loop, "monotonic", lambda: now[0]):
        return checkpoint.saved_iterations(train(resolve(config, ranks=Together()), NullView(), drift))


def test_ranks_save_together_and_a_bench_shows_every_rank(tmp_path: Path, world: World) -> None:
    """If one is told to leave, it takes all with it; rank 0 decides when it is time."""
    assert world(train_and_end, config(tmp_path / "run"), evicted) == ["preempted", "preempted"]
    assert (newest(tmp_path / "run").iteration, newest(tmp_path / "run").ranks) == (1, 2)
    slow = config(tmp_path / "slow", checkpoint_every=100, checkpoint_minutes=2.0)
    assert world(run_slowly, slow) == [[2, 4]] * 2
    # Each has half of the environments, and both take as long: they wait for each other.
    tables, silence = world(benched)
    assert "rank 0: " in tables
    assert "rank 1: " in tables
    assert silence == ""


def benched() -> str:
    """The table that rank 0 prints."""
    ranks = Together()
    config = replace(preset("DeceptiveReach"), num_envs=24, device="cpu", model=ModelConfig(hidden=(8,)))
    found = bench(resolve(config, ranks=ranks).config, 1, lambda text: None, ranks)
    assert len(found.ranks) == 2
    return found.table() if ranks.first else ""


def one_mistake() -> list[str]:
    """A mistake of the last rank only, found in both ways."""
    ranks = Together()

    def act() -> int:
        if ranks.rank == ranks.size - 1:
            raise UserError("it is full")
        return 0

    return [ended(lambda: ranks.attempt(act)), ended(lambda: ranks.agree(act))]


def answers() -> list[int]:
    ranks = Together()
    return [ranks.agree(lambda: ranks.rank), ranks.agree(lambda: 3 - ranks.rank)]


def broken(num_envs: int, device: torch.device, seed: int) -> DriftEnv:
    """An environment with rewards of a wrong shape."""
    return disturbed(DriftEnv(num_envs, seed), lambda _, step: replace(step, reward=torch.zeros(1)))


def differ(config: TrainConfig, what: str, place: Path) -> str:
    """Begin with another seed, other code, or another current directory on each rank."""
    rank = str(Together().rank)
    (place / rank).mkdir(exist_ok=True)
    code = (lambda: rank) if what == "code" else agreement._code
    config = replace(config, seed=int(rank) if what == "seed" else 0)
    with chdir(place / rank), patch.multiple(agreement, PATIENCE_S=0.2, _code=code):
        return train_and_end(config)


def test_one_mistake_is_told_once(world: World, tmp_path: Path) -> None:
    """A mistake of one rank, of all environments, and of ranks that do not fit together."""
    assert world(one_mistake) == [["rank 1: it is full"] * 2, ["silent"] * 2]
    assert world(answers) == [[1, 3], [1, 3]]
    said, silence = world(train_and_end, config(tmp_path / "run"), broken)
    assert "reward must have the shape [12], not [1]" in said
    assert silence == "silent"
    for what, sentence in (
        ("seed", "seed is 1 on rank 1 (on "),
        ("code", "the code of Echelon is 1 on rank 1 (on "),
        ("folder", "runs/one of rank 0 (on "),
    ):
        said, silence = world(differ, config(Path("runs/one")), what, tmp_path)
        assert said.startswith(sentence)
        assert silence == "silent"
    assert "is not there for rank 1" in said


def test_what_ranks_may_differ_in_and_how_environments_divide_between_them(tmp_path: Path) -> None:
    """In nothing but their machine and their GPU, which each has for itself."""
    first = {"host": "a", "gpu": "gpu-0", "the device": "cuda", "the version of torch": "2.13", "update.clip": 0.2}
    for changes, sentence in (
        ({"host": "b", "gpu": "gpu-1"}, None),
        ({"the device": "cpu", "gpu": None}, "the device is cpu on rank 1 (on a) but cuda on rank 0 (on a); start"),
        ({}, "rank 1 (on a) has no GPU of its own: rank 0 has the same"),
        ({"gpu": "gpu-1", "the version of torch": "2.11"}, "the version of torch is 2.11 on rank 1 (on a) but 2.13"),
        ({"gpu": "gpu-1", "update.clip": 0.1}, "update.clip is 0.1 on rank 1 (on a) but 0.2 on rank 0"),
    ):
        found = agreement.difference([first, first | changes])
        assert (found or "").startswith(sentence) if sentence else found is None
    assert resolve(config(tmp_path), ranks=Four()).plan.layout.num_envs == 6
    with pytest.raises(UserError, match=r"27 environments of 3 policies do not divide between 4 ranks.*24 or 36 would"):
        resolve(config(tmp_path, num_envs=27), ranks=Four())
    uneven = config(tmp_path, num_envs=60, envs_per_policy=(36, 12, 12))
    assert resolve(uneven, ranks=Four()).plan.layout.sizes == [9, 3, 3]
    odd = config(tmp_path, update=replace(config(tmp_path).update, minibatches=16))
    with pytest.raises(UserError, match="24 environments of 3 policies do not split into 16 equal minibatches on each"):
        resolve(odd, ranks=Four())


class Four(Ranks):
    """Only in name."""

    size = 4


def tolerances(successes: Tensor, mean_of_ranks: Any = None) -> list[float]:
    """The tolerance after each step, of which every rank knows its share of the successes `[R, steps, n]`."""
    tolerance = Tolerance(AllegroKukaConfig(tolerance_interval=2), torch.device("cpu"))
    if mean_of_ranks is None:
        tolerance.mean_of_ranks, successes = Together().mean, successes[Together().rank]
    seen = []
    for found in successes:
        tolerance.advance(found)
        seen.append(tolerance.value.item())
    return seen


def test_all_ranks_have_one_tolerance_exchanges_can_be_compiled_and_moments_do_not_cancel(world: World) -> None:
    """Rank 0 alone would shrink it at once, rank 1 never."""
    slow = torch.tensor([-1.0, -1, -1, 0, 0, 0, 0, 0])[:, None].expand(8, 3)
    successes = torch.stack((torch.full((8, 3), 6.0), slow))
    expected = tolerances(torch.cat((*successes,), dim=1), mean_of_ranks=ALONE)
    assert world(tolerances, successes) == [expected, expected]
    assert expected[2] == pytest.approx(0.075)
    assert expected[3] == pytest.approx(0.0675)
    # x · mean(2, 3) + max(2, 3) at 2 and at 3. For 0 to 19: variance 20·21/12 = 35, mean 9.5.
    assert world(compiled) == [(8.0, 2.5), (10.5, 2.5)]
    for var, mean in world(moments):
        assert var.item() == pytest.approx(35.0, rel=1e-12)
        assert mean.item() == pytest.approx(1e6 + 9.5, rel=1e-15)


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
    """Moments of numbers far from zero: rank r has 1e6 + (10 r, ..., 10 r + 9)."""
    ranks = Together()
    x = 1e6 + 10.0 * ranks.rank + torch.arange(10.0, dtype=torch.float64)
    return ranks.var_mean(x[:, None], (0,))


def test_ranks_that_are_started_again_agree_on_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a store in which everything is left that the first start wrote, as torchrun's own is: no rank takes an old
    answer for one of a rank 0 that is not there yet. A rank that never comes is named."""
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

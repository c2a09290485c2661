"""Checkpoints come back to the bit, are pruned as promised, no crash costs one; damaged ones are passed over, and
forged ones are one sentence each."""

import itertools
import math
import os
import shutil
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from chaos.checkpoints import Change, forge
from tiny import tiny

from echelon import cli
from echelon.config import ModelConfig, TrainConfig
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate
from echelon.runs import checkpoint, durable
from echelon.runs.checkpoint import STATE, TENSORS, find, save
from echelon.runs.folder import RunFolder
from echelon.runs.untrusted import Unreadable
from echelon.training.loop import train


def forbidden(text: str) -> None:
    """A `warn` for where nothing may be damaged."""
    raise AssertionError(text)


def found(folder: RunFolder, which: checkpoint.Which = "newest", warn: Any = forbidden) -> checkpoint.Checkpoint:
    loaded = find(folder, which, warn)
    assert loaded is not None
    return loaded


def names(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.checkpoints.iterdir())


def exact(x: Any) -> Any:
    """What is equal for two states if they are in structure, order, type and every bit."""
    if isinstance(x, torch.Tensor):
        return x.dtype, x.shape, x.contiguous().flatten().view(torch.uint8).tolist()
    if isinstance(x, dict | list | tuple):
        return type(x), [exact(item) for item in (x.items() if isinstance(x, dict) else x)]
    return type(x), repr(x)  # which is exact for floats, and tells -0.0 from 0.0


def test_states_of_every_kind_round_trip_to_the_bit(folder: RunFolder) -> None:
    shared = torch.randn(3)
    state = {
        "float64": torch.randn(4, 3, dtype=torch.float64) * 1e-300,
        "nan payload": torch.tensor([math.nan, -0.0, math.inf, 1e-45]),
        "bfloat16": torch.randn(5).bfloat16(),
        "half": torch.randn(5).half(),
        "uint8": torch.arange(256, dtype=torch.uint8),
        "int64": torch.tensor([2**62, -1]),
        "bool": torch.tensor([True, False, True]),
        "0-dim": torch.tensor(3.5, dtype=torch.float64),
        "empty": torch.empty(0, 7),
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "strided": torch.arange(10)[::3],
        "expanded": torch.tensor([1.0]).expand(4),
        "alias": shared,
        "same alias": shared,
        "part of it": shared[1:],
        "parameter": torch.nn.Parameter(torch.randn(2)),
        "keys": {"": 1, "/": 2, "a/b": {"a": {"b": 3}}, 5: {"ü": torch.ones(1)}},
        "keys of the format": [{"$map": [[1, 2]]}, {"$float": "inf"}, {"$tuple": []}, {"$tensor": "int64"}],
        "nested": [None, (True, [(), {}, []], {0: ()}), 'a"\n\\$/'],
        "numbers": [2**70, -(2**70), 1e-320, 1e300 / 3, -0.0, math.inf, -math.inf, math.nan],
    }
    save(folder, 1, state)
    loaded = found(folder).state
    assert exact({**state, "parameter": state["parameter"].detach()}) == exact(loaded)
    shared.zero_()  # training continues at once: what was saved is a copy, and what was loaded is writable
    loaded["alias"] += found(folder).state["alias"]
    assert loaded["alias"].any()


def test_newest_k_and_the_best_are_kept(folder: RunFolder) -> None:
    for iteration, score in [(1, 5.0), (2, 9.0), (3, math.nan), (4, 7.0), (5, None), (6, 8.0)]:
        save(folder, iteration, {"i": iteration}, score)
    assert names(folder) == ["00000002", "00000005", "00000006"]
    for loaded, expected in ((found(folder, "best"), (2, 9.0, {"i": 2})), (found(folder), (6, 8.0, {"i": 6}))):
        assert (loaded.iteration, loaded.score, loaded.state) == expected
    for score in (9.0, None):  # the newest of equal scores is the best, and so it is without any
        shutil.rmtree(folder.checkpoints)
        for iteration in (1, 2, 3):
            save(folder, iteration, {}, score)
        assert names(folder) == ["00000002", "00000003"]
        assert found(folder, "best").iteration == 3
    (folder.checkpoints / "00000003" / STATE).write_bytes(b"")  # damaged ones do not count towards those kept
    for iteration, kept in ((4, ["00000002", "00000003", "00000004"]), (5, ["00000004", "00000005"])):
        save(folder, iteration, {})
        assert names(folder) == kept


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-9] ^= 1  # in the tensors' values, or in the text of the state
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut short": lambda path: os.truncate(path, path.stat().st_size // 2),
    "a flipped bit": flip_a_bit,
    "empty": lambda path: path.write_bytes(b""),
    "missing": Path.unlink,
    "not given back by the disk": lambda path: (path.unlink(), path.symlink_to("/proc/self/mem")),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [TENSORS, STATE])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(folder: RunFolder, damage: str, name: str) -> None:
    save(folder, 1, {"x": torch.tensor([1.0]), "text": "before"}, score=1.0)
    save(folder, 2, {"x": torch.tensor([2.0]), "text": "after"}, score=2.0)
    DAMAGES[damage](folder.checkpoints / "00000002" / name)
    for which in ("newest", "best"):
        with pytest.warns(UserWarning, match=rf"00000002 is damaged \(.*{name}.*\) and was skipped"):
            assert found(folder, which, warnings.warn).iteration == 1


def test_every_single_flipped_byte_is_noticed_or_harmless(folder: RunFolder) -> None:
    """Whatever byte of either file is hit, the state that comes back is never a wrong one."""
    state = {"x": torch.arange(4.0), "n": 12345, "nested": {"lr": 0.001}}
    save(folder, 1, state)
    for name in (TENSORS, STATE):
        path = folder.checkpoints / "00000001" / name
        whole = path.read_bytes()
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
            loaded = find(folder, warn=lambda text: None)
            if loaded is not None:
                assert exact(state) == exact(loaded.state)
                assert (loaded.iteration, loaded.score) == (1, None)
        path.write_bytes(whole)


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("again", [False, True], ids=["new iteration", "same iteration"])
def test_a_crash_before_any_file_operation_loses_nothing(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Dies before the first, second, ... operation on files; each time a whole state is there, old or new."""
    survived = 0
    for crash_at in range(100):
        shutil.rmtree(folder.checkpoints, ignore_errors=True)
        for iteration in (1, 2, 3):
            save(folder, iteration, {"x": iteration}, score=float(-iteration))
        left = crash_at

        def dying(operation: Any) -> Any:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                nonlocal left
                if left == 0:
                    raise Crash
                left -= 1
                return operation(*args, **kwargs)

            return wrapped

        with monkeypatch.context() as patch:
            for place, name in ((os, "rename"), (os, "fsync"), (shutil, "rmtree"), (Path, "mkdir")):
                patch.setattr(place, name, dying(getattr(place, name)))
            try:
                save(folder, 3 if again else 4, {"x": "new"}, score=-9.0)
                survived = crash_at
            except Crash:
                pass
        assert found(folder).state["x"] in ((3, "new") if not survived else ("new",))
        assert found(folder, "best").state == {"x": 1}
        save(folder, 5, {"x": 5})  # and saving continues, cleaning up
        assert not [name for name in names(folder) if not name.isdigit()]
        if survived:
            break
    assert survived > 5  # or the operations were not the ones patched


def test_what_cannot_be_saved_is_told_and_the_old_one_is_kept(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(folder, "newest", forbidden) is find(folder, "best", forbidden) is None
    with monkeypatch.context() as patch:  # a passing read error ends no run
        patch.setattr(checkpoint, "read_json", Mock(side_effect=Unreadable("state.json cannot be read")))
        save(folder, 1, {"x": 1})
    with pytest.raises(TypeError, match=r"env/clock is set"):
        save(folder, 2, {"env": {"clock": {1, 2}}})
    assert found(folder).iteration == 1
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(UserError, match=r"00000002 cannot be written: No space left on device"):
        save(folder, 2, {"x": 2})
    assert names(folder) == ["00000001"]
    target = folder.path / "a.json"  # a file that is replaced is whole too, and leaves no temporary one
    target.write_bytes(b"old")
    with pytest.raises(OSError, match="No space left on device"):
        durable.replace_durably(target, b"new")
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in folder.path.iterdir()) == ["a.json", "checkpoints"]


def test_a_reader_never_misses_a_checkpoint_that_is_being_replaced(tmp_path: Path) -> None:
    """With one checkpoint kept, another thread saves new ones and the same ones again as fast as it can."""
    folder = RunFolder(tmp_path, TrainConfig(keep_checkpoints=1))
    save(folder, 1, {"x": torch.zeros(1000)}, 1.0)
    stop = threading.Event()

    def saves() -> None:
        for iteration in itertools.count(2):
            if stop.is_set():
                return
            for _ in range(2):
                save(folder, iteration, {"x": torch.full((1000,), float(iteration))}, float(iteration))

    saver = threading.Thread(target=saves)
    saver.start()
    try:
        seen = 0
        while seen < 12:
            for loaded in (found(folder), found(folder, "best")):  # a damaged one would raise
                assert loaded.iteration >= seen
                assert loaded.state["x"].eq(loaded.iteration).all() or loaded.iteration == 1
                seen = loaded.iteration
    finally:
        stop.set()
        saver.join()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny("CartpoleSwingup", tmp_path_factory.mktemp("runs") / "run", keep_checkpoints=1)).path


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


def widen(tensors: dict[str, Any], end: str) -> None:
    name = next(name for name in tensors if name.endswith(end))
    tensors[name] = tensors[name].repeat(1, 3)


HOSTILE: dict[str, Change] = {
    "a tensor is missing": lambda body, rank, tensors: tensors.pop("trainer/model/log_sigma"),
    "a tensor has another shape": lambda body, rank, tensors: widen(tensors, "obs_norm.policy.mean"),
    "no tensors at all": lambda body, rank, tensors: b"no tensors",
    "no ranks": lambda body, rank, tensors: body.update(ranks=[]),
    "a state that is a list": lambda body, rank, tensors: rank.update(state=[1]),
    "a trainer that is a number": lambda body, rank, tensors: rank["state"].update(trainer=3),
    "no model": lambda body, rank, tensors: rank["state"]["trainer"].pop("model"),
    "a model of words": lambda body, rank, tensors: rank["state"]["trainer"].update(model={"a": "b"}),
    "a float of letters": lambda body, rank, tensors: rank["state"].update(seconds={"$float": "abc"}),
    "a map with lists for keys": lambda body, rank, tensors: rank["state"].update(more={"$map": [[[1], 2]]}),
    "another iteration": lambda body, rank, tensors: body.update(iteration=10**30),
    "a score that is text": lambda body, rank, tensors: body.update(score="best"),
    "a format that is none": lambda body, rank, tensors: body.update(format=[2]),
}
TO_TRAINERS: dict[str, Change] = {
    "endless seconds": lambda body, rank, tensors: rank["state"].update(seconds={"$float": "inf"}),
    "a generator that is none": lambda body, rank, tensors: rank["state"]["trainer"].update(generator=[1, 2]),
    "a trainer of another iteration": lambda body, rank, tensors: rank["state"]["trainer"].update(iteration=-5),
}
TO_READERS: dict[str, Change] = {
    "a leader that is none": lambda body, rank, tensors: rank["state"]["trainer"].update(leader="me"),
}
if sys.version_info < (3, 12):  # later ones read it, and nothing asks for what is in it
    HOSTILE["nested a thousand times"] = lambda body, rank, tensors: rank["state"].update(more=nested(900))


@pytest.mark.filterwarnings("ignore:checkpoint")
def test_a_crafted_checkpoint_is_one_sentence(trained: Path, tmp_path: Path) -> None:
    for number, (name, change) in enumerate((HOSTILE | TO_TRAINERS | TO_READERS).items()):
        config = tiny("CartpoleSwingup", tmp_path / str(number), keep_checkpoints=1)
        folder = RunFolder(shutil.copytree(trained, tmp_path / str(number)), config)
        forge(max(folder.checkpoints.iterdir()), change)
        for act, spared in (
            (lambda: train(replace(config, iterations=3)), TO_READERS),  # noqa: B023
            (lambda: evaluate(folder, num_envs=1, device="cpu"), TO_TRAINERS),  # noqa: B023
        ):
            if name in spared:
                continue
            with pytest.raises(UserError, match=r"checkpoint|network") as caught:
                act()
            assert "\n" not in str(caught.value), name


@pytest.mark.parametrize("other", ["task", "network"])
def test_a_checkpoint_of_another_run_is_one_sentence(tmp_path: Path, other: str) -> None:
    """Copied into a folder that has no better one."""
    config = tiny("CartpoleSwingup", tmp_path / "run")
    change = {"model": ModelConfig(hidden=(16,), phi_dim=2)} if other == "network" else {}
    strange = train(replace(tiny("Hopper" if other == "task" else config.task, tmp_path / "other"), **change))
    folder = RunFolder.create_or_resume(config)
    strange.checkpoints.rename(folder.checkpoints)
    with pytest.raises(UserError, match=r"does not fit this run \(.+\): it is of another task or network"):
        train(replace(config, iterations=3))


def test_a_flag_that_changes_the_network_is_not_taken_for_a_damaged_folder(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flag, value, why in (
        ("model.hidden", "16", "it sets the shape of the networks"),
        ("num_envs", "12", "environment steps are counted by it"),
    ):
        assert cli.main(["train", "--resume", str(trained), f"--{flag}", value]) == 2
        assert f"{flag} cannot be changed in {trained}: {why}" in capsys.readouterr().err


def test_a_folder_where_a_file_should_be_or_the_other_way_round(trained: Path, tmp_path: Path) -> None:
    config, run = tiny("CartpoleSwingup", tmp_path / "run"), shutil.copytree(trained, tmp_path / "run")
    for name in ("metrics.jsonl", "diagnostics/kl.jsonl", ".lock", "config.json", "tensorboard"):
        (run / name).rename(tmp_path / "old")
        (run / name).write_text("") if name == "tensorboard" else (run / name).mkdir()
        with pytest.raises(UserError) as caught:
            train(replace(config, iterations=3))
        assert (str(run) in str(caught.value), "\n" in str(caught.value)) == (True, False), name
        (run / name).unlink() if name == "tensorboard" else (run / name).rmdir()
        (tmp_path / "old").rename(run / name)

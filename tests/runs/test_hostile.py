"""Forged checkpoints with valid checksums, and folders in the place of files: one sentence each."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chaos.checkpoints import Change, forge
from tiny import tiny

from echelon.config import ModelConfig
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate
from echelon.runs.folder import RunFolder
from echelon.training.loop import train


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

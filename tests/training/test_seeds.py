"""`--seeds`: every seed has a run folder like any other, equal to that of a run by itself, and all resume together."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny
from training.test_trainer import assert_same

from echelon.cli import main
from echelon.config import DiagnosticsConfig, TrainConfig
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate, evaluate_every
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_distances, read_metrics
from echelon.training.loop import train, train_seeds

SEEDS = (2, 0, 5)
PAIR = (2, 0)


def short(out: Path, iterations: int = 6, algo: str = "cpo", lstm: int = 0) -> TrainConfig:
    config = tiny("CartpoleSwingup", out, algo, lstm, iterations=iterations, checkpoint_every=2)
    return replace(config, diagnostics=DiagnosticsConfig(every=3), adversary=replace(config.adversary, coef=0.1))


def newest(folder: RunFolder) -> dict[str, Any]:
    found = checkpoint.load(folder, "newest")
    return found.state["trainer"]


def test_each_seeds_folder_is_that_of_a_run(tmp_path: Path) -> None:
    """Settings, metrics and networks; what is computed in float32 agrees to 1e-5 after a few iterations."""
    algo, lstm = "cpo", 4
    folders = train_seeds(short(tmp_path / "all", 4, algo, lstm), SEEDS)
    for seed, folder in zip(SEEDS, folders, strict=True):
        assert folder.path == tmp_path / "all" / f"seed_{seed}"
        alone = train(replace(short(tmp_path / f"alone_{seed}", 4, algo, lstm), seed=seed))
        assert replace(folder.config, out="") == replace(alone.config, out="")
        ours, theirs = newest(folder), newest(alone)
        assert set(ours) == set(theirs)
        for name, x in theirs["model"].items():
            torch.testing.assert_close(ours["model"][name], x, rtol=1e-5, atol=1e-5, msg=name)
        assert ours["generator"].equal(theirs["generator"])
        assert ours["env"]["generator"].equal(theirs["env"]["generator"])
        lines = zip(read_metrics(folder), read_metrics(alone), strict=True)
        for found, expected in lines:
            timed = ("time/", "fps/", "wall_s")
            for name in (name for name in expected if not name.startswith(timed)):
                assert found[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-4, nan_ok=True), name
        assert [line["iteration"] for line in read_distances(folder)] == [1, 4]
        assert checkpoint.saved_iterations(folder) == checkpoint.saved_iterations(alone)
    assert len(evaluate(folders[1], num_envs=2).scores) == 6


def test_seeds_resume_together_to_the_bit_also_after_a_kill_between_two_saves(tmp_path: Path) -> None:
    """If the first save of all was cut short, they start over."""
    whole = train_seeds(short(tmp_path / "whole"), PAIR)
    for iterations in (2, 4):
        parts = train_seeds(short(tmp_path / "parts", iterations), PAIR)
        shutil.rmtree(parts[1].checkpoints / f"{iterations:08d}")  # as if killed after the first seed was saved
        assert [len(read_metrics(folder)) for folder in parts] == [iterations] * 2
    train_seeds(short(tmp_path / "parts"), PAIR)
    for ours, theirs in zip(parts, whole, strict=True):
        assert_same(newest(ours), newest(theirs))
        for found, expected in zip(read_metrics(ours), read_metrics(theirs), strict=True):
            assert found["iteration"] == expected["iteration"]
            assert found["loss/actor"] == expected["loss/actor"]


def test_a_seed_that_went_on_alone_is_left_as_it_is(tmp_path: Path) -> None:
    folders = train_seeds(short(tmp_path / "all", 2), PAIR)
    train(replace(folders[0].config, iterations=6))
    with pytest.raises(UserError, match=r"seed_2 is ahead of .*seed_0, so they cannot continue side by side"):
        train_seeds(short(tmp_path / "all", 6), PAIR)
    assert len(read_metrics(folders[0])) == 6


@pytest.mark.parametrize(
    ("changes", "seeds", "sentence"),
    [
        ({}, (1, 1), "--seeds names a seed twice: 1 1"),
        ({}, (-1, 1), "--seed must be at least 0"),
        ({"algo": "pbt"}, (0, 1), "pbt chooses between its members by itself"),
    ],
)
def test_what_cannot_be_is_one_sentence_before_anything_is_written(
    changes: dict[str, Any], seeds: tuple[int, ...], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        train_seeds(replace(short(tmp_path / "all"), **changes), seeds)
    assert not (tmp_path / "all").exists()


def test_seeds_stop_together_and_each_is_evaluated_and_has_its_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`until` is asked about the mean over seeds."""
    shown: list[float] = []
    begun: list[dict[str, Any]] = []

    class Service:
        def __init__(self, **settings: Any) -> None:
            begun.append(settings | {"logged": []})
            self.log, self.define_metric = begun[-1]["logged"].append, lambda *_, **__: None

        def finish(self) -> None: ...

    pytest.importorskip("wandb", reason="needs pip install 'echelon-rl[wandb]'")
    monkeypatch.setattr("wandb.init", Service)
    config = replace(short(tmp_path / "all", 9, "ppo"), until="env_steps>=60", wandb="offline")
    folders = train_seeds(config, PAIR, callbacks=[lambda metrics: shown.append(metrics["lr"]), evaluate_every(2, 2)])
    lines = [read_metrics(folder) for folder in folders]
    assert [len(one) for one in lines] == [3, 3]  # 24 steps each
    assert shown == pytest.approx([(first["lr"] + second["lr"]) / 2 for first, second in zip(*lines, strict=True)])
    for folder, metrics, service in zip(folders, lines, begun, strict=True):
        found = [json.loads(line) for line in (folder.path / "evaluations.jsonl").read_text().splitlines()]
        assert [line["iteration"] for line in found] == [2, 3]
        assert "evaluated/leader" in metrics[2]
        assert service["reinit"] == "create_new"
        assert [line["loss/actor"] for line in service["logged"]] == pytest.approx([x["loss/actor"] for x in metrics])


def test_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many, or which; without --out each folder has the name it would have alone."""
    monkeypatch.chdir(tmp_path)
    flags = ["CartpoleSwingup", "--algo", "ppo", "--num-envs", "4", "--iterations", "1", "--update.minibatches", "1"]
    assert main(["train", *flags, "--seeds", "2"]) == 0
    assert main(["train", *flags, "--seeds", "4", "7", "--out", "mine"]) == 0
    runs = sorted(str(path.parent) for path in Path().rglob("config.json"))
    assert runs == ["mine/seed_4", "mine/seed_7", "runs/CartpoleSwingup-ppo-s0", "runs/CartpoleSwingup-ppo-s1"]

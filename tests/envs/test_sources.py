"""Environments that are not built in: named on the command line, stored with the run, opened again."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from envs import least
from envs.own_task import Pole, PoleConfig

from echelon import cli
from echelon.algorithms import Preset, converted
from echelon.config import ModelConfig, TrainConfig, UpdateConfig
from echelon.config.schema import ForeignSettings
from echelon.envs import sources
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate
from echelon.runs.folder import RunFolder
from echelon.tasks import preset
from echelon.training.loop import train

TINY = ["--algo", "cpo", "--device", "cpu", "--num-envs", "12", "--policies", "3"]
TINY += ["--update.horizon", "8", "--model.hidden", "8"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def small(**changes: Any) -> TrainConfig:
    model, update = ModelConfig(hidden=(8,)), UpdateConfig(horizon=8)
    sizes = {"num_envs": 12, "policies": 3, "iterations": 2, "model": model, "update": update}
    return TrainConfig(task="Mine", algo="cpo", device="cpu", out="run", **sizes | changes)


def run(*words: str) -> int:
    return cli.main([*words])


def metrics(path: str | Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (Path(path) / "metrics.jsonl").read_text().splitlines()]


def pole(num_envs: int, device: torch.device, seed: int) -> Pole:
    """A function, not the class, as a user would pass it from Python."""
    return Pole(PoleConfig(spread=(-0.1, 0.3)), num_envs, device, seed)


def test_a_run_of_ones_own_mujoco_task_is_opened_again() -> None:
    """From Python, with settings whose class only the task's module knows: resumed, opened, evaluated."""
    config = small(env=PoleConfig(spread=(-0.1, 0.3)))
    folder = train(config, make_env=pole)
    train(replace(config, iterations=3), make_env=pole)
    opened = RunFolder.open(folder.path)
    assert isinstance(opened.config.env, ForeignSettings)
    assert opened.config.env.values["spread"] == (-0.1, 0.3)
    assert len(metrics(folder.path)) == 3
    by_hand = evaluate(opened, 2, device="cpu", make_env=pole)
    assert [score.length_mean for score in by_hand.scores] == [20.0] * 6
    assert evaluate(opened, 2, device="cpu") == by_hand  # it is stored where `pole` lies
    with pytest.raises(UserError, match=r"env\.spread is -0\.1 0\.3 in .* but 0\.0 1\.0 here"):
        train(replace(config, env=PoleConfig(spread=(0.0, 1.0))), make_env=pole)


def test_a_class_by_its_place(capsys: pytest.CaptureFixture) -> None:
    """Its settings are flags, its preset is the start, and other commands find it again."""
    words = ["--env", "envs.own_task:Pole", "--device", "cpu", "--env.spread", "0.1", "0.2", "--iterations"]
    assert run("train", *words, "1") == 0
    assert run("train", *words, "2") == 0
    config = RunFolder.open("runs/Pole-cpo-s0").config
    assert (config.source, config.num_envs) == ("envs.own_task:Pole", 12)
    assert len(metrics("runs/Pole-cpo-s0")) == 2
    for command in (["evaluate", "--num-envs", "2"], ["record", "--format", "html"], ["report"]):
        assert run(command[0], "runs/Pole-cpo-s0", *command[1:]) == 0, command
    assert "saves no state" not in capsys.readouterr().out
    assert run("bench", "envs.own_task:Pole", "--device", "cpu", "--repeats", "1", "--json", "b.json") == 0


def test_a_function_by_its_place_with_arguments(capsys: pytest.CaptureFixture) -> None:
    """The least an environment can have: what it lacks is said once, and training resumes after a stop."""
    words = ["--env", "envs.least:make", "--env-arg", "bonus=2", *TINY, "--iterations"]
    assert run("train", *words, "3") == 0
    said = capsys.readouterr().out
    assert said.count("gives no final_obs") == 1
    assert run("train", *words, "4") == 0
    assert "saves no state (state_dict), so new episodes start" in capsys.readouterr().out
    lines = metrics("runs/least-cpo-s0")
    assert lines[-1]["return/leader"] > 5  # 5 steps of 1 + 2 less the squared action, which is at most 1
    assert lines[0]["env/clock"] == pytest.approx((1 + 2 + 3 + 4 + 0 + 1 + 2 + 3) / 8)
    assert run("train", *words[:2], "--env-arg", "bonus=3", *words[4:], "5") == 2
    assert "pass --env-arg bonus=2 to resume it" in capsys.readouterr().err
    # Without an algorithm it is PPO, and one line names the ensemble.
    assert run("train", *words[:4], "--device", "cpu", "--num-envs", "12", "--iterations", "1") == 0
    assert capsys.readouterr().out.count("--algo cpo trains an ensemble") == 1
    assert RunFolder.open("runs/least-ppo-s0").config.update.minibatches == 16


def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture) -> None:
    wrong = {
        "envs.own_task:nothing": "envs.own_task:nothing cannot be found",
        "envs.own_task:NOT_A_MAKER": "NOT_A_MAKER is a int, not a function or class",
        "envs.least:make --env-arg bonus": "--env-arg takes name=value, not 'bonus'",
        "envs.least:make --env-arg bones=1": "got an unexpected keyword argument 'bones'",
        "../..:make": "is not the name of code; write mypackage.module:make",
        "../robots/arm:Arm": "for a folder or file there, write arm:Arm and run this in ../robots",
    }
    for words, sentence in wrong.items():
        assert run("train", *words.split(), *TINY) == 2, words
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1


def test_entry_points_are_names(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """What an installed package registers is a task like any other. Arguments are read as Python or JSON has them."""
    monkeypatch.setattr(sources, "registered", lambda: {"mypole": "envs.own_task:Pole"})
    assert preset("mypole") == converted(replace(Pole.preset, task="mypole", source="mypole"), Preset)
    assert run("train", "mypole", "--device", "cpu", "--iterations", "1") == 0
    capsys.readouterr()
    assert run("tasks") == 0
    assert re.search(r"^  mypole +from envs\.own_task:Pole$", capsys.readouterr().out, re.MULTILINE)
    with pytest.raises(UserError, match=r"mypol is not a task; did you mean mypole\?"):
        preset("mypol")
    words = ("a=1", "b=0.5", "c=true", "d=None", "e=[1, 2]", "f=text", "g=x=y")
    found = sources.env_args(TrainConfig(env_arg=words))
    assert found == {"a": 1, "b": 0.5, "c": True, "d": None, "e": [1, 2], "f": "text", "g": "x=y"}


def test_names_of_runs_and_what_cannot_be_named(tmp_path: Path) -> None:
    named = {
        "gymnasium:Walker2d-v5": "Walker2d-v5",
        "a.b:make": "b",
        "a.b:Arm": "Arm",
        "gymnasium:ALE/Pong": "ALE-Pong",
    }
    assert {source: sources.task_name(source) for source in named} == named
    assert re.fullmatch(r"(tests\.)?envs\.test_sources:pole", str(sources.source_of(pole)))
    folder = train(small(), make_env=lambda *order: least.make(*order))
    assert folder.config.source is None
    with pytest.raises(UserError, match="Mine is not a built-in task, and its run does not say how to make it"):
        evaluate(RunFolder.open(folder.path), 2, device="cpu")

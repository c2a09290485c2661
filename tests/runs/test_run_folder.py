"""A run folder is complete before anything is built, resumes by the same command, refuses the rest in words, and is
trained by one process at a time."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import echelon.tasks
from echelon.algorithms import CpoTrainConfig
from echelon.config import ModelConfig, TaskConfig, TrainConfig, UpdateConfig, to_dict
from echelon.errors import UserError
from echelon.runs.folder import RunFolder, hold, is_held


@dataclass(frozen=True)
class PendulumConfig(TaskConfig):
    """A task of this test's own."""

    velocities: bool = True
    limits: bool = False
    mass: float = 1.0
    contacts: int | None = None


PRESET = CpoTrainConfig(task="Pendulum", policies=6, env=PendulumConfig(), update=UpdateConfig(horizon=8))


@pytest.fixture(autouse=True)
def in_an_empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def preset(task: str) -> TrainConfig:
        if task != "Pendulum":
            raise UserError(f"{task} is not a task")
        return PRESET

    monkeypatch.setattr(echelon.tasks, "preset", preset)
    monkeypatch.chdir(tmp_path)


def refusal(action: Any, *args: Any) -> str:
    """The one sentence an action is refused with."""
    with pytest.raises(UserError) as caught:
        action(*args)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def begun(config: TrainConfig) -> RunFolder:
    """A run that has learned something."""
    folder = RunFolder.create_or_resume(config)
    folder.metrics.write_text('{"iteration": 1}\n')
    return folder


def test_a_run_is_named_after_task_seed_and_algorithm_or_variant() -> None:
    Path("runs/Pendulum-sapg-s7").mkdir(parents=True)  # an empty folder is taken
    folder = RunFolder.create_or_resume(replace(PRESET, algo="sapg", seed=7))
    assert (folder.path, folder.name) == (Path("runs/Pendulum-sapg-s7"), "Pendulum-sapg-s7")
    config = replace(PRESET, variant=("no_pull", "entropy_off"), seed=7)
    assert RunFolder.create_or_resume(config).path == Path("runs/Pendulum-no_pull+entropy_off-s7")
    assert RunFolder.open("runs/Pendulum-no_pull+entropy_off-s7").config == config


def test_config_json_is_complete_or_absent_and_every_start_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.create_or_resume(PRESET)
    document = json.loads((folder.path / "config.json").read_text())
    assert document["config"] == json.loads(json.dumps(to_dict(PRESET)))
    (session,) = document["sessions"]
    assert document["created"] == session["started"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", session["started"])
    assert all(session["versions"][package] for package in ("torch", "echelon"))
    assert all(session["hardware"][part] for part in ("cores", "cpu"))
    assert "gpu" in session["hardware"]
    assert session["git_revision"] is None or re.fullmatch(r"[0-9a-f]{40}(\+changes)?", session["git_revision"])
    again = RunFolder.create_or_resume(replace(PRESET, policies=6))  # what None stands for
    assert again.path == folder.path
    resumed = json.loads((again.path / "config.json").read_text())
    assert len(resumed["sessions"]) == 2
    assert resumed["created"] == document["created"]
    # Killed while writing config.json, the folder is as good as new.
    shutil.rmtree(folder.path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            RunFolder.create_or_resume(PRESET)
    assert RunFolder.create_or_resume(PRESET).config == PRESET


def test_the_stored_config_comes_back_in_its_own_classes() -> None:
    config = replace(PRESET, env=PendulumConfig(velocities=False), model=ModelConfig(hidden=(8, 4)), policies=3)
    folder = RunFolder.create_or_resume(config)
    opened = RunFolder.open(f"{folder.path}/")
    assert opened.config == config
    assert isinstance(opened.config.env, PendulumConfig)
    own = CpoTrainConfig(task="MyRobot", policies=2, seed=3, out="run")  # a task of one's own has no preset
    RunFolder.create_or_resume(own)
    assert RunFolder.open("run").config == own
    path = folder.path / "config.json"  # fields newer than the run take the preset's value
    document = json.loads(path.read_text())
    del document["config"]["update"]["clip"], document["config"]["adversary"]
    path.write_text(json.dumps(document))
    assert RunFolder.open(folder.path).config == config


def test_what_may_change_on_resume_is_taken_over_and_so_is_another_place() -> None:
    begun(PRESET).path.rename("elsewhere")
    diagnostics = replace(PRESET.diagnostics, every=3, states=8)
    config = replace(
        PRESET, out="elsewhere", env_steps=5, checkpoint_every=1, keep_checkpoints=1, diagnostics=diagnostics
    )
    for changed in (config, replace(config, env_steps=7, iterations=9)):
        folder = RunFolder.create_or_resume(changed)
        assert folder.path == Path("elsewhere")
        assert folder.config == RunFolder.open(folder.path).config == changed
    # Settings found out later are stored, and do not hinder resuming.
    given = replace(PRESET, env=PendulumConfig(), out="run")
    folder = RunFolder.create_or_resume(given)
    found = replace(given, env=PendulumConfig(contacts=11))
    assert folder.with_config(found).config == found
    assert RunFolder.open("run").config == found
    assert RunFolder.create_or_resume(given).config == given


def test_another_robots_run_is_not_resumed_because_its_class_has_the_same_name() -> None:
    """A copy of a task's folder, changed, is another task; code that was moved is resumed where the user says so."""
    config = replace(PRESET, source="robot:Pendulum")
    folder = begun(config)
    stored = (folder.path / "config.json").read_bytes()
    copy = replace(config, source="robot_copy:Pendulum")
    said = refusal(RunFolder.create_or_resume, copy)
    assert said == (
        f"{folder.path} holds a run of robot:Pendulum, not of robot_copy:Pendulum; choose another folder with --out, "
        f"or resume it there with --out {folder.path}"
    )
    assert (folder.path / "config.json").read_bytes() == stored
    moved = RunFolder.create_or_resume(replace(copy, out=str(folder.path)))
    assert RunFolder.open(folder.path).config.source == "robot_copy:Pendulum"
    moved.discard()  # its code could not be started
    assert (folder.path / "config.json").read_bytes() == stored


DIFFERENT: list[tuple[dict[str, Any], list[str]]] = [
    ({"task": "Hopper"}, ["holds a run of Pendulum, not of Hopper", "--out"]),
    ({"num_envs": 512}, ["num_envs is 256 in run but 512 here", "--num-envs 256", "--out"]),
    ({"variant": ("no_pull",)}, ["variant is none", "no_pull here", "--variant to resume"]),
    ({"update": replace(PRESET.update, minibatches=2)}, ["update.minibatches is None", "--update.minibatches None"]),
    ({"model": ModelConfig(hidden=(8,))}, ["model.hidden is 256 128 64", "8 here", "--model.hidden 256 128 64"]),
    ({"env": PendulumConfig(velocities=False)}, ["env.velocities is True", "--env.velocities to resume"]),
    ({"env": PendulumConfig(limits=True)}, ["env.limits is False", "--env.no-limits to resume"]),
]


def test_any_other_difference_names_field_values_and_cure() -> None:
    before = replace(PRESET, out="run")
    begun(before)
    for change, words in DIFFERENT:
        sentence = refusal(RunFolder.create_or_resume, replace(before, **change))
        assert [word for word in words if word not in sentence] == []
    assert RunFolder.open("run").config == before  # and nothing was written


def test_a_run_that_never_began_takes_other_settings() -> None:
    """As after too many environments for the device's memory."""
    for out in ("metrics", "checkpoints"):
        before, after = replace(PRESET, out=out), replace(PRESET, out=out, num_envs=64)
        RunFolder.create_or_resume(before)
        folder = RunFolder.create_or_resume(after)
        assert RunFolder.open(out).config == after
        folder.require_same(before)
        folder.checkpoints.mkdir() if out == "checkpoints" else folder.metrics.write_text('{"iteration": 1}\n')
        assert "num_envs is 64" in refusal(folder.require_same, before)
        assert "num_envs is 64" in refusal(RunFolder.create_or_resume, before)


def test_a_folder_with_other_files_is_refused_and_left_alone() -> None:
    Path("thesis").mkdir()
    Path("thesis/notes.txt").write_text("precious")
    assert "thesis is not empty" in refusal(RunFolder.create_or_resume, replace(PRESET, out="thesis"))
    assert os.listdir("thesis") == ["notes.txt"]
    Path("file").write_text("")
    assert "file is a file" in refusal(RunFolder.create_or_resume, replace(PRESET, out="file"))
    assert "cannot be written" in refusal(RunFolder.create_or_resume, replace(PRESET, out="file/below"))
    # Opening a missing run suggests the one beside it.
    RunFolder.create_or_resume(PRESET)
    Path("runs/Pendulum-cpo-s00").mkdir()  # nearer, but no run
    assert refusal(RunFolder.open, "runs/Pendulum-cp-s0").endswith("did you mean runs/Pendulum-cpo-s0?")
    assert refusal(RunFolder.open, "nowhere/at/all") == "there is no run folder nowhere/at/all"
    assert refusal(RunFolder.open, "9" * 400) == f"there is no run folder {'9' * 400}"
    sentence = "not a run folder: it has no config.json; did you mean runs/Pendulum-cpo-s0?"
    assert refusal(RunFolder.open, "runs").endswith(sentence)


BROKEN = {
    "": "cannot be read",
    '{"config": {"task": "Pend': "cannot be read",
    "[1, 2]": "was not written by echelon",
    '{"config": {"task": "Pendulum", "env": {"mas": 1}}}': "env.mas is not",
    '{"config": {"task": "Pendulum", "seed": "1"}}': "seed takes a whole number",
    '{"config": {"task": "Pendulum", "threads": 10000000}}': "--threads must be",
    '{"config": {"task": "Pendulum", "num_envs": ' + "9" * 400 + "}}": "must be at most 4,000,000, not a number of 400",
    '{"config": {"task": "Own", "policies": null}}': "it has no number of policies",
    '{"config": {"task": "\\ud800"}}': "cannot be read",
    '{"config": {"task": "Pendulum", "env": ' + 70 * "[" + 70 * "]" + "}}": "nested too deeply",
}


def test_a_broken_config_is_told_by_file_and_fault() -> None:
    Path("run").mkdir()
    for text, word in BROKEN.items():
        Path("run/config.json").write_text(text)
        for action, argument in ((RunFolder.open, "run"), (RunFolder.create_or_resume, replace(PRESET, out="run"))):
            sentence = refusal(action, argument)
            assert ("run/config.json" in sentence, word in sentence) == (True, True), (text, sentence)


LOCK = "import sys; from pathlib import Path; from echelon.runs.folder import {0}; print({0}(Path(sys.argv[1])))"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no lock on Windows")
def test_one_process_trains_in_a_folder_and_looking_at_its_lock_keeps_it(tmp_path: Path) -> None:
    def elsewhere(call: str) -> subprocess.CompletedProcess[str]:
        """What another process makes of `call`."""
        return subprocess.run([sys.executable, "-c", LOCK.format(call), str(tmp_path)], capture_output=True, text=True)

    hold(tmp_path)
    assert not is_held(tmp_path)  # not by another process
    assert elsewhere("is_held").stdout == "True\n"
    assert "is being trained by another process" in elsewhere("hold").stderr
    (tmp_path / ".lock").unlink()  # a new folder in its place is not the one that was held
    command = [sys.executable, "-c", LOCK.format("hold") + "; sys.stdout.flush(); sys.stdin.read()", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        assert is_held(tmp_path)
        other.communicate()
    assert not is_held(tmp_path)

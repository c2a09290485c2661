"""A task is its folder: inside the package or outside, nothing else has to name it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import echelon
from echelon import cli
from echelon.envs import sources
from echelon.tasks import TASKS, best_variants, preset

SMALL = ["--device", "cpu", "--iterations", "1", "--num-envs", "24", "--update.horizon", "8"]


def python(package: Path, cwd: Path, *words: str) -> str:
    """What a Python with `echelon` from the folder `package` prints."""
    environment = os.environ | {"PYTHONPATH": str(package)}
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_built_in_task_needs_only_its_folder(tmp_path: Path) -> None:
    """The skeleton, written among the tasks of a copy of the package, is listed and trained like the others."""
    shutil.copytree(Path(echelon.__file__).parent, tmp_path / "echelon", ignore=shutil.ignore_patterns("__pycache__"))
    assert cli.main(["new-task", "ReachArm", str(tmp_path / "echelon" / "tasks")]) == 0
    listed = python(tmp_path, tmp_path, "-m", "echelon", "tasks")
    assert len(listed.splitlines()) == len(TASKS) + 1
    assert "bring the tip of an arm to a goal" in listed
    python(tmp_path, tmp_path, "-m", "echelon", "train", "ReachArm", *SMALL, "--env.effort-cost", "0.1", "--out", "run")
    assert (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_folder_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its place or by an entry point; its preset needs no torch, so that a wrong flag is answered at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sources, "registered", lambda: {"OuterArm": "outer_arm:OuterArm"})
    assert cli.main(["new-task", "OuterArm"]) == 0
    for name in ("outer_arm:OuterArm", "OuterArm"):
        config = preset(name)
        assert (config.task, config.source, config.num_envs) == ("OuterArm", name, 192)
        assert best_variants(config, algo_chosen=False) == ()
        assert cli.main(["train", name, *SMALL, "--out", name.replace(":", "_")]) == 0
    script = "from echelon.tasks import preset; preset('outer_arm:OuterArm'); import sys; print('torch' in sys.modules)"
    assert python(Path(echelon.__file__).parents[1], tmp_path, "-c", script) == "False\n"


FAILURES = (
    ("settings.py", "", "", "{0} is not a task; its folder and its class name it, as in {0}:{1}"),
    ("{0}.xml", "<geom type", "<gem type", "MuJoCo cannot load {2}/{0}.xml: XML Error: Schema violation: .*'gem'"),
    ("{0}.xml", "<worldbody>", '<asset><mesh file="a.stl"/></asset><worldbody>', "Error opening file '.*a.stl'"),
    ("task.py", '"policy": 8', '"policy": 7', r"observation policy must have the shape \[24, 7\], not \[24, 8\]"),
)


def test_a_start_that_fails_says_why_and_leaves_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the model is there, or in the first step: the next report would complain about an empty run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for number, (file, old, new, sentence) in enumerate(FAILURES, 1):
        folder, task = f"arm{number}", f"Arm{number}"
        assert cli.main(["new-task", task]) == 0
        written = tmp_path / folder / file.format(folder)
        written.write_text(written.read_text().replace(old, new, 1))
        name = folder if file == "settings.py" else f"{folder}:{task}"
        assert cli.main(["train", "--env", name, *SMALL, "--out", "runs/a"]) == 2
        expected = sentence.format(folder, task, re.escape(str(tmp_path / folder)))
        assert re.search(expected, capsys.readouterr().err)
        assert not (tmp_path / "runs" / "a").exists()

"""What a report makes of run folders, broken ones above all: what cannot be read is named, and the others are shown."""

import csv
import itertools
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report.synthetic import write_lines, write_run

from echelon.errors import UserError
from echelon.report.page import payload
from echelon.report.reading import find_runs, read_run, read_runs
from echelon.report.write import read_contents, write_report
from echelon.runs.metrics import read_lines

HUGE = int("9" * 400)
CONFIG, METRICS, KL = "config.json", "metrics.jsonl", "diagnostics/kl.jsonl"


def test_a_run_as_it_was_written(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "cpo", seed=3, iterations=40))
    assert (run.name, run.task) == ("CartpoleSwingup-cpo-s3", "CartpoleSwingup")
    assert (run.iterations, run.finished, run.notes) == (40, True, [])
    assert run.env_steps == 40 * 96 * 16
    assert math.isnan(run.columns["return/leader"][0])  # null: no episode had ended
    assert len(run.columns["ess"]) == 40
    assert np.isfinite(run.columns["ess"]).sum() == 4 == len(run.distances)  # measured every tenth iteration
    assert (run.settings["update.horizon"], run.settings["policies"]) == (16, 6)
    assert (run.machine["device"], run.machine["revision"]) == ("a CPU", "0123456789+changes")
    assert "loss/0" in run.columns  # any metric can be drawn
    assert read_run(write_run(tmp_path, "mine", iterations=2, level=1.0)).config.algo == "mine"
    stopped = read_run(write_run(tmp_path, iterations=30, planned=1200))
    assert (stopped.finished, stopped.notes) == (False, ["unfinished: 30 of 1,200 iterations"])
    path = write_run(tmp_path, task="MyRobot")
    alter(path, CONFIG, "config.env", {"arms": 3})
    alter(path, CONFIG, "sessions", "lost")
    assert read_run(path).settings["env.arms"] == 3  # of a task that is not known here
    # Iterations that compile tell nothing of a usual one: here 0.15, 0.16 and 0.17 s in turn, 20 s and 1 s at first.
    slow = [line | {"time/update": 20.0 if line["iteration"] == 1 else 1.0} for line in read_lines(path / METRICS)[:2]]
    write_lines(path, [*slow, *read_lines(path / METRICS)[2:38]])
    assert read_run(path).seconds["update"] == pytest.approx(0.16)
    # SAC learns nothing while its replay fills, here in 20 iterations of 38: the others are not taken for compiling,
    # and its rate is theirs.
    filling = [line | {"time/update": 0.0, "fps/total": 1e6} for line in read_lines(path / METRICS)[:20]]
    write_lines(path, [*filling, *read_lines(path / METRICS)[20:]])
    assert read_run(path).seconds["update"] == pytest.approx(0.16 * 18 / 38)
    assert payload(read_contents([path], "return"))["speed"][0]["rate"] == pytest.approx(6000, rel=0.02)
    # The final score is the mean of the last twentieth.
    path = write_run(tmp_path / "score", iterations=60)
    lines: list[dict[str, Any]] = [{"iteration": i, "return/leader": float(i)} for i in range(1, 61)]
    write_lines(path, lines)
    assert read_run(path).final("return/leader") == pytest.approx((58 + 59 + 60) / 3)
    lines[-1]["return/leader"] = None
    write_lines(path, lines)
    assert read_run(path).final("return/leader") == pytest.approx((58 + 59) / 2)
    assert math.isnan(read_run(path).final("successes/leader"))


def test_damaged_lines_and_maps_are_left_out_and_many_maps_thinned(tmp_path: Path) -> None:
    path = write_run(tmp_path, iterations=20)
    text = (path / METRICS).read_text().splitlines()
    text[4] = text[4][:50]
    (path / METRICS).write_text("\n".join(text)[:-30])
    with (path / KL).open("a") as file:  # of other sizes, or no measurement
        file.write('{"env_steps": 5, "kl": [[0, 1], [1, 0]]}\n[1]\n{"env_steps": 5}\nnonsense\n')
        file.write('{"env_steps": 5, "kl": [[0, 1, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1]]}\n')
    run = read_run(path)
    assert (len(run.columns["iteration"]), len(run.distances)) == (18, 2)
    assert run.notes[0] == "1 damaged lines of metrics.jsonl were skipped"
    assert run.notes[-1] == "unfinished: 19 of 20 iterations"
    write_lines(path, [{"iteration": k, "env_steps": k, "kl": [[0.0] * 6] * 6} for k in range(1001)], KL)
    kept = [found["env_steps"] for found in read_run(path).distances]
    assert (len(kept), kept[0], kept[30], kept[60]) == (61, 0, 500, 1000)
    assert {b - a for a, b in itertools.pairwise(kept)} == {16, 17}  # 1000 / 60 = 16.7


def alter(run: Path, file: str, place: str, value: Any) -> None:
    """Put a value at a dotted place of the first two lines of a file of JSON."""
    lines = [json.loads(line) for line in (run / file).read_text().splitlines()]
    for line in lines[:2]:
        *groups, last = (int(word) if word.isdigit() else word for word in place.split("."))
        for group in groups:
            line = line[group]
        line[last] = value
    write_lines(run, lines, file)


NO_STEPS = ["2 lines of metrics.jsonl without environment steps were skipped"]
DAMAGED_KL = ["2 damaged lines of kl.jsonl were skipped"]
ODD: list[tuple[str, str, Any, list[str]]] = [
    (KL, "kl.0.1", "<b>", DAMAGED_KL),
    (KL, "kl.0.1", None, []),
    (KL, "env_steps", HUGE, DAMAGED_KL),
    (METRICS, "env_steps", None, NO_STEPS),
    (METRICS, "env_steps", HUGE, NO_STEPS),
    (METRICS, "iteration", HUGE, ["2 damaged lines of metrics.jsonl were skipped"]),
    (METRICS, "return/leader", "=1+1", []),
    (METRICS, "return/leader", HUGE, []),
    (CONFIG, "sessions", [{"hardware": [1]}], []),
    (CONFIG, "sessions", [{"git_revision": 3}], []),
]
"""What stands somewhere instead, and what a report notes of it."""
NAMES = ["$x_$", "=1+1", "@evil", "-2", "+3", "$\\frac{1}{"]
"""Names of folders, which are untrusted."""


def test_they_are_shown_with_what_can_be_read(tmp_path: Path) -> None:
    """All of them in one report."""
    paths = []
    for number, (file, place, value, notes) in enumerate(ODD):
        paths.append(write_run(tmp_path, seed=number, iterations=20))
        alter(paths[-1], file, place, value)
        assert read_run(paths[-1]).notes == notes, (file, place)
    for number, name in enumerate(NAMES):
        paths.append(write_run(tmp_path, "ppo", seed=number, iterations=20).rename(tmp_path / name))
    if os.name != "nt":
        odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run\xff"))
        paths.append(write_run(tmp_path, "sapg", iterations=20).rename(odd))
    write_report(read_contents(paths, "return"), tmp_path / "report")
    with (tmp_path / "report" / "runs.csv").open() as file:
        found = {row["run"] for row in csv.DictReader(file)}
    assert {name if name.startswith("$") else f"'{name}" for name in NAMES} <= found
    assert os.name == "nt" or "run\\xff" in found


NO_CONFIG, NO_METRICS = "it is not a run folder: it has no config.json", "it has a config but no metrics yet"
REFUSED: list[tuple[str, str | None, str]] = [
    (CONFIG, None, NO_CONFIG),
    (CONFIG, "{", "its config.json cannot be read"),
    (CONFIG, '{"config": {"task": "A", "seed": -1}}', "cannot be used: --seed must be at least 0, not -1"),
    (METRICS, '{"iter', NO_METRICS),
    (METRICS, None, NO_METRICS),
]
"""Another text of a file, or none; tests of run folders have more."""


def test_broken_runs_are_named_and_the_others_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine, empty, a_file = write_run(tmp_path / "fine"), tmp_path / "empty", tmp_path / "file"
    empty.mkdir()
    a_file.touch()
    sentences = {str(empty): "it is empty", str(a_file): "it is a file, not a run folder"}
    for number, (file, text, sentence) in enumerate(REFUSED):
        odd = write_run(tmp_path, seed=number, iterations=2)
        (odd / file).unlink() if text is None else (odd / file).write_text(text)
        sentences[str(odd)] = sentence
    runs, problems = read_runs([*map(Path, sentences), fine])
    assert [run.path for run in runs] == [fine]
    assert [*problems] == [*sentences]
    assert [path for path, sentence in problems.items() if sentences[path] not in sentence] == []

    def surprise(path: Path) -> None:
        raise RecursionError("too deep\nin there")

    monkeypatch.setattr("echelon.report.reading.read_run", surprise)
    assert read_runs([fine])[1] == {str(fine): "it cannot be read (RecursionError: too deep)"}


def test_folders_stand_for_their_runs_and_tell_equal_names_apart(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a", seed=seed, iterations=2) for seed in (1, 0)]
    for name in ("logs", "half/checkpoints", "report"):
        (tmp_path / "a" / name).mkdir(parents=True)
    (tmp_path / "a" / "report" / "index.html").write_text("")
    assert find_runs([tmp_path / "a", runs[0]]) == [runs[1], runs[0], tmp_path / "a" / "half"]
    assert find_runs([tmp_path / "a" / "report", tmp_path / "a" / "logs"]) == [tmp_path / "a" / "logs"]
    with pytest.raises(UserError, match=r"there is no run folder .* did you mean .*CartpoleSwingup-cpo-s1\?"):
        find_runs([tmp_path / "a" / "CartpoleSwingup-cpo-s01"])
    found, _ = read_runs([*runs, write_run(tmp_path / "b", iterations=2)])
    same = "CartpoleSwingup-cpo-s0"
    assert [run.name for run in found] == ["CartpoleSwingup-cpo-s1", f"a/{same}", f"b/{same}"]

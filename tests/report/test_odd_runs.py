"""One odd run does not cost the report of the others: what cannot be read is named and left out."""

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report.synthetic import write_run

from echelon.report.reading import read_run, read_runs
from echelon.report.write import read_contents, write_report

HUGE = int("9" * 400)


def change_config(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads((path / "config.json").read_text())
    change(document)
    (path / "config.json").write_text(json.dumps(document))


def change_lines(path: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    lines = [json.loads(line) for line in (path / name).read_text().splitlines()]
    for line in lines[:2]:
        change(line)
    (path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


KL = "diagnostics/kl.jsonl"
ODD: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a string in a KL matrix": (
        lambda path: change_lines(path, KL, lambda line: line["kl"][0].__setitem__(1, "<b>")),
        ["2 damaged lines of kl.jsonl were skipped"],
    ),
    "a KL of 400 digits": (
        lambda path: change_lines(path, KL, lambda line: line.update(env_steps=HUGE)),
        ["2 damaged lines of kl.jsonl were skipped"],
    ),
    "null in a KL matrix": (lambda path: change_lines(path, KL, lambda line: line["kl"][0].__setitem__(1, None)), []),
    "null steps": (
        lambda path: change_lines(path, "metrics.jsonl", lambda line: line.update(env_steps=None)),
        ["2 lines of metrics.jsonl without environment steps were skipped"],
    ),
    "steps of 400 digits": (
        lambda path: change_lines(path, "metrics.jsonl", lambda line: line.update(env_steps=HUGE)),
        ["2 lines of metrics.jsonl without environment steps were skipped"],
    ),
    "an iteration of 400 digits": (
        lambda path: change_lines(path, "metrics.jsonl", lambda line: line.update(iteration=HUGE)),
        ["2 damaged lines of metrics.jsonl were skipped"],
    ),
    "a return that is text": (
        lambda path: change_lines(path, "metrics.jsonl", lambda line: line.update({"return/leader": "=1+1"})),
        [],
    ),
    "a return of 400 digits": (
        lambda path: change_lines(path, "metrics.jsonl", lambda line: line.update({"return/leader": HUGE})),
        [],
    ),
    "a session that is none": (
        lambda path: change_config(path, lambda it: it.update(sessions=[{"hardware": [1]}])),
        [],
    ),
    "a revision that is a number": (
        lambda path: change_config(path, lambda it: it.update(sessions=[{"git_revision": 3}])),
        [],
    ),
}


NAMES = ["$x_$", "=1+1", "@evil", "-2", "+3", "$\\frac{1}{"]
"""Of folders, as anybody may call them."""


def test_they_are_shown_with_what_can_be_read(tmp_path: Path) -> None:
    """All of them in one report."""
    paths = []
    for number, name in enumerate(ODD):
        act, notes = ODD[name]
        paths.append(write_run(tmp_path, seed=number, iterations=20))
        act(paths[-1])
        assert read_run(paths[-1]).notes == notes, name
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


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda it: it["config"]["update"].update(horizon=-4), "--update.horizon must be at least 1, not -4"),
        (lambda it: it["config"]["update"].update(clip=HUGE), "update.clip takes a number that float64 can hold"),
        (lambda it: it["config"].update(num_envs=HUGE), "--num-envs must be at most 10,000,000, not a number of 400"),
        (lambda it: it["config"].update(seed=10**23), "--seed must be within 0 and 4294967295"),
        (lambda it: it["config"].update(policies=-1), "--policies must be at least 1, not -1"),
    ],
)
def test_settings_out_of_range_are_named_and_the_run_left_out(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    odd, fine = write_run(tmp_path, seed=1), write_run(tmp_path, seed=2)
    change_config(odd, change)
    runs, problems = read_runs([odd, fine])
    assert [run.path for run in runs] == [fine]
    assert sentence in problems[0].sentence


def test_what_nobody_thought_of_is_named_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def surprise(path: Path) -> None:
        raise RecursionError("too deep\nin there")

    monkeypatch.setattr("echelon.report.reading.read_run", surprise)
    assert read_runs([tmp_path])[1][0].sentence == "it cannot be read (RecursionError: too deep)"

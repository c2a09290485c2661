"""The log of a run: one line per iteration, none twice, and a cut line costs only itself."""

import json
import math
from pathlib import Path

import pytest

from echelon.runs.folder import RunFolder
from echelon.runs.metrics import DISTANCES, GENEALOGY, RunWriter, read_distances, read_lines, read_metrics


def write(folder: RunFolder, completed: int, *iterations: int, tag: float = 0.0) -> None:
    with RunWriter(folder, completed) as writer:
        for iteration in iterations:
            writer.write({"iteration": iteration, "env_steps": iteration * 100, "return/leader": tag})


def scalars(folder: RunFolder, name: str) -> list[tuple[int, float]]:
    """What TensorBoard would draw."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder.tensorboard))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_lines_come_back_in_order_with_their_types(folder: RunFolder) -> None:
    assert read_metrics(folder) == []  # none yet
    write(folder, 0, 1, 2, 3)
    lines = read_metrics(folder)
    assert [line["iteration"] for line in lines] == [1, 2, 3]
    assert type(lines[0]["iteration"]) is int
    assert read_metrics(folder.path) == lines


def test_values_that_are_not_finite_become_null_and_come_back_as_nan(folder: RunFolder) -> None:
    with RunWriter(folder) as writer:
        writer.write({"iteration": 1, "a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.5})
        assert len(read_metrics(folder)) == 1  # a line is there as soon as it is written
    assert json.loads(folder.metrics.read_text()) == {"iteration": 1, "a": None, "b": None, "c": None, "d": 0.5}
    (line,) = read_metrics(folder)
    assert math.isnan(line["a"])
    assert math.isnan(line["c"])
    assert line["d"] == 0.5


def test_resuming_drops_what_came_after_the_checkpoint(folder: RunFolder) -> None:
    write(folder, 0, 1, 2, 3, 4, tag=1.0)
    write(folder, 2, 3, 4, 5, tag=2.0)
    found = [(line["iteration"], line["return/leader"]) for line in read_metrics(folder)]
    assert found == [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0), (5, 2.0)]
    write(folder, 0, 1)  # starting over
    assert [line["iteration"] for line in read_metrics(folder)] == [1]


def test_kl_matrices_and_takeovers_resume_too(folder: RunFolder) -> None:
    """KL matrices name each policy's nearest, the smallest number of a row off the diagonal."""
    matrix = [[0.0, 0.2, 0.3], [0.1, 0.0, 0.05], [0.4, 0.6, 0.0]]
    with RunWriter(folder) as writer:
        writer.write_takeovers(0, 0, [{"member": 0, "after": {"clip": 0.2}}])
        for iteration in (4, 8):
            writer.write_distances(iteration, 100 * iteration, matrix)
            writer.write_takeovers(iteration, 100 * iteration, [{"member": 1, "donor": 0, "after": {"clip": 0.3}}])
    for name in (DISTANCES, GENEALOGY):
        with (folder.path / name).open("a") as file:
            file.write('{"iteration": 9, "cut sho')
    RunWriter(folder, completed=4).close()
    assert read_lines(folder.path / DISTANCES) == [
        {"iteration": 4, "env_steps": 400, "kl": matrix, "nearest": [1, 2, 0]}
    ]
    kept = read_lines(folder.path / GENEALOGY)
    assert [(line["iteration"], line["env_steps"], line["after"]["clip"]) for line in kept] == [
        (0, 0, 0.2),
        (4, 400, 0.3),
    ]
    RunWriter(folder).close()
    assert read_lines(folder.path / GENEALOGY) == []


def test_what_is_no_measurement_is_left_out_in_silence(folder: RunFolder, recwarn: pytest.WarningsRecorder) -> None:
    """A report counts warnings as damage of the metrics."""
    (folder.path / DISTANCES).parent.mkdir()
    (folder.path / DISTANCES).write_bytes(b'{"iteration": 10}\n[1]\n{"kl": []}\n\xc3\n{"iteration": 20}\n')
    assert [line["iteration"] for line in read_distances(folder)] == [10, 20]
    assert not recwarn.list


def test_a_crash_while_dropping_lines_keeps_the_old_file(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, 0, 1, 2, 3)

    def killed(path: Path, data: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("echelon.runs.durable.write_durably", killed)
    with pytest.raises(KeyboardInterrupt):
        RunWriter(folder, 1)
    assert [line["iteration"] for line in read_metrics(folder)] == [1, 2, 3]


def test_tensorboard_follows_env_steps_and_forgets_what_was_dropped(folder: RunFolder) -> None:
    write(folder, 0, 1, 2, 3, 4, tag=1.0)
    write(folder, 2, 3, tag=2.0)
    assert scalars(folder, "return/leader") == [(100, 1.0), (200, 1.0), (300, 2.0)]


def test_tensorboard_leaves_out_what_is_not_finite(folder: RunFolder) -> None:
    with RunWriter(folder) as writer:
        for iteration, value in ((1, 0.5), (2, math.nan), (3, math.inf), (4, 1.5)):
            writer.write({"iteration": iteration, "env_steps": 100 * iteration, "a": value, "b": -value})
    assert scalars(folder, "a") == [(100, 0.5), (400, 1.5)]
    assert scalars(folder, "b") == [(100, -0.5), (400, -1.5)]


def test_a_clock_that_goes_back_hides_nothing_from_tensorboard(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 0, 1, 2, 3, tag=1.0)
    monkeypatch.setattr("time.time", lambda: 1e9)
    write(folder, 3, 4, 5, tag=2.0)
    assert scalars(folder, "return/leader") == [(100, 1.0), (200, 1.0), (300, 1.0), (400, 2.0), (500, 2.0)]

"""KL matrices on disk."""

from pathlib import Path

import pytest

from echelon.config import TrainConfig
from echelon.runs.distances import FILE, DistanceWriter, read_distances
from echelon.runs.folder import RunFolder

MATRIX = [[0.0, 0.2, 0.3], [0.1, 0.0, 0.05], [0.4, 0.6, 0.0]]


def test_the_nearest_policy_is_named_and_resuming_drops_what_comes_after(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, TrainConfig())
    writer = DistanceWriter(folder)
    writer.write(10, 100, MATRIX)
    writer.write(20, 200, MATRIX)
    assert [line["nearest"] for line in read_distances(folder)] == [[1, 2, 0]] * 2  # row minima off the diagonal
    with (folder.path / FILE).open("a") as file:
        file.write('{"iteration": 30, "kl"')  # cut short by a kill
    DistanceWriter(folder, completed=10)
    assert [line["iteration"] for line in read_distances(folder)] == [10]


def test_what_is_no_measurement_is_left_out_in_silence(folder: RunFolder, recwarn: pytest.WarningsRecorder) -> None:
    """A report counts warnings as damage of the metrics."""
    (folder.path / FILE).parent.mkdir()
    (folder.path / FILE).write_bytes(b'{"iteration": 10}\n[1]\n{"kl": []}\n\xc3\n{"iteration": 20}\n')
    assert [line["iteration"] for line in read_distances(folder)] == [10, 20]
    assert not recwarn.list
    DistanceWriter(folder, completed=10)
    assert [line["iteration"] for line in read_distances(folder)] == [10]

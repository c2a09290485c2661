"""KL matrices on disk."""

import pytest

from echelon.runs.distances import FILE, read_distances
from echelon.runs.folder import RunFolder
from echelon.runs.writer import RunWriter


def test_what_is_no_measurement_is_left_out_in_silence(folder: RunFolder, recwarn: pytest.WarningsRecorder) -> None:
    """A report counts warnings as damage of the metrics."""
    (folder.path / FILE).parent.mkdir()
    (folder.path / FILE).write_bytes(b'{"iteration": 10}\n[1]\n{"kl": []}\n\xc3\n{"iteration": 20}\n')
    assert [line["iteration"] for line in read_distances(folder)] == [10, 20]
    assert not recwarn.list
    RunWriter(folder, completed=10).close()
    assert [line["iteration"] for line in read_distances(folder)] == [10]

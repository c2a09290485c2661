"""Starting `echelon train` and watching its first iterations end."""

import argparse
import os
from pathlib import Path

import pytest
import startup


def test_two_starts_on_one_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    args = argparse.Namespace(algo="ppo", num_envs=16, device="cpu", starts=1, cache=cache)
    found, again = (startup.measure("CartpoleSwingup", args) for _ in range(2))
    assert found["first_start_is_cold"]
    assert not again["first_start_is_cold"]
    for one in found["starts"] + again["starts"]:
        assert 0.2 < one["before_training_s"] < one["first_s"] < one["third_s"] < 100  # torch alone takes 0.2 s to load


def test_a_run_that_fails_is_an_error(capfd: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit, match="after 0 iterations"):
        startup.start("CartpoleSwingup", ["--num-envs=0"], os.environ)


class Process:
    """Ends when it has been asked as often as there are pieces left to write."""

    def __init__(self, file: Path, pieces: list[str]) -> None:
        self.file, self.pieces = file, pieces

    def poll(self) -> int | None:
        if not self.pieces:
            return 0
        with self.file.open("a") as file:
            file.write(self.pieces.pop(0))
        return None if self.pieces else 0


def test_lines_are_read_whole_and_once(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    pieces = ['{"iteration": 1}\n{"iter', 'ation": 2}', "\n"]
    assert [line["iteration"] for line in startup.follow(file, Process(file, pieces))] == [1, 2]
    file.unlink()
    pieces = ["".join(f'{{"iteration": {i}}}\n' for i in (1, 2, 3)), "rest"]
    assert [line["iteration"] for line in startup.follow(file, Process(file, pieces))] == [1, 2, 3]
    assert pieces == ["rest"]  # nobody waited for more

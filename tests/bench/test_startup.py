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
    with pytest.raises(SystemExit, match="ended with status 2, as said above"):
        startup.start("CartpoleSwingup", ["--num-envs=0"], os.environ)

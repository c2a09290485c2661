"""The wheel brings all its data: installed without the source tree, it trains, records and reports."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel holds, and nothing of ours besides."""
    pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheel")
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = out.glob("echelon_rl-*.whl")
    assert wheel.stat().st_size < 2_000_000
    zipfile.ZipFile(wheel).extractall(out / "site")
    return out / "site"


def echelon(site: Path, cwd: Path, *words: str) -> str:
    """A command of the installed package."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "echelon", *words],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_trains_records_and_reports(site: Path, tmp_path: Path) -> None:
    small = ["--device", "cpu", "--iterations", "1", "--num-envs", "96"]
    echelon(site, tmp_path, "train", "Hopper", *small, "--out", "run")
    echelon(site, tmp_path, "record", "run", "--format", "html")
    echelon(site, tmp_path, "report", "run")
    echelon(site, tmp_path, "new-task", "Arm")
    assert (tmp_path / "run" / "report" / "index.html").stat().st_size > 100_000
    assert (tmp_path / "run" / "replay" / "all.html").stat().st_size > 100_000
    config = (tmp_path / "run" / "config.json").read_text()
    assert '"git_revision": null' in config  # it is not the checkout that ran


def test_it_has_every_file_of_the_package(site: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "src/echelon"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    missing = [name for name in listed.stdout.split() if not (site / name.removeprefix("src/")).exists()]
    assert missing == []

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
    """A folder with what the wheel holds, and nothing else of ours."""
    pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheel")
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = out.glob("echelon_rl-*.whl")
    assert wheel.stat().st_size < 2_000_000
    zipfile.ZipFile(wheel).extractall(out / "site")
    return out / "site"


def test_it_trains_records_and_reports(site: Path, tmp_path: Path) -> None:
    lines = ["train Hopper --device cpu --iterations 1 --num-envs 96 --out run", "record run --format html"]
    lines += ["report run", "new-task Arm"]
    script = f"import sys; from echelon.cli import main; sys.exit(max(main(line.split()) for line in {lines}))"
    environment = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
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

"""What must agree before a version is built, and that the wheel brings all its data: installed without the source tree,
it trains, records and reports."""

import os
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
problems = runpy.run_path(str(ROOT / "release.py"))["problems"]
READY = {
    "tag": "v1.2.0",
    "version": "1.2.0",
    "changelog": "# Changelog\n\n## 1.2.0, May 2027\n\n* A thing.\n\n## 1.1.0\n",
    "citation": "title: Echelon\nversion: 1.2.0\n",
    "changes": "",
}


CASES = [
    ({"tag": "v1.1.0"}, "this commit is tagged v1.1.0, and src/echelon/__init__.py says 1.2.0"),
    ({"tag": ""}, "tagged with nothing"),
    ({"changelog": "## Unreleased\n\n* A thing.\n"}, "CHANGELOG.md has no section '## 1.2.0'"),
    ({"changelog": "## 1.2.0\n\n## 1.1.0\n\n* Old.\n"}, "CHANGELOG.md has no section '## 1.2.0'"),
    ({"citation": "version: 1.1.0\n"}, "CITATION.cff does not have version: 1.2.0"),
    ({"changes": " M README.md"}, "files differ from the commit"),
]


def test_what_is_not_ready_is_said() -> None:
    assert problems(**READY) == []
    found = [(problems(**READY | change), sentence) for change, sentence in CASES]
    assert [(said, sentence) for said, sentence in found if len(said) != 1 or sentence not in said[0]] == []


def test_the_notice_names_every_dependency_with_its_licence_and_every_model() -> None:
    """A row of the notice: name, licence, what for."""
    rows = dict(re.findall(r"^  (\S+)(?: [\d.]+)?  +(\S+  +\S.*)$", (ROOT / "NOTICE").read_text(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = (word for words in project["optional-dependencies"].values() for word in words)
    names = {re.split(r"[<>=;\[]", word)[0] for word in (*project["dependencies"], *extras)} - {project["name"]}
    assert names - rows.keys() == set()
    models = re.findall(r"\b\w+\*?\.xml", (ROOT / "NOTICE").read_text())
    found = [path.name for path in (ROOT / "src").rglob("*.xml")]
    assert [name for name in found if not any(fnmatch(name, one) for one in models)] == []


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

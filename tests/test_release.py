"""What must agree before a version is built."""

import re
import runpy
import tomllib
from fnmatch import fnmatch
from pathlib import Path

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

"""What must agree before a version is built."""

import runpy
from pathlib import Path

problems = runpy.run_path(str(Path(__file__).parents[1] / "release.py"))["problems"]
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

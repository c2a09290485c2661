"""Builds wheel and sdist of a tagged version into dist/, if all that names the version agrees: `make release`.

    git tag v0.2.0 && make release

Nothing is uploaded: that is left to the person who holds the name, with the two files in dist/.
"""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent
NEEDED = ("echelon/py.typed", "echelon/tasks/in_hand/allegro_cube.xml", "echelon/viewing/web/replay.bundle.js")
"""Files that are no Python and easily left out of a wheel."""


def problems(tag: str, version: str, changelog: str, citation: str, changes: str) -> list[str]:
    """What is not ready, in a sentence each; `changes` is what git says of the working tree."""
    found = []
    if tag != f"v{version}":
        found.append(f"this commit is tagged {tag or 'with nothing'}, and src/echelon/__init__.py says {version}")
    section = re.search(rf"^## {re.escape(version)}\b.*\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    if section is None or not section[1].strip():
        found.append(f"CHANGELOG.md has no section '## {version}' with something in it")
    if not re.search(rf"^version: [\"']?{re.escape(version)}[\"']?$", citation, re.MULTILINE):
        found.append(f"CITATION.cff does not have version: {version}")
    if changes:
        found.append("files differ from the commit; commit or stash them")
    return found


def main() -> int:
    version = re.findall(r'__version__ = "(.+)"', (ROOT / "src/echelon/__init__.py").read_text())[0]
    tags = _git("tag", "--points-at", "HEAD").split()
    tag = f"v{version}" if f"v{version}" in tags else next((tag for tag in tags if tag.startswith("v")), "")
    changelog, citation = ((ROOT / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff"))
    found = problems(tag, version, changelog, citation, _git("status", "--porcelain"))
    for sentence in found:
        print(f"not ready: {sentence}", file=sys.stderr)
    if found:
        return 1
    subprocess.run([sys.executable, "-m", "hatchling", "build"], cwd=ROOT, check=True)
    wheel = ROOT / "dist" / f"echelon_rl-{version}-py3-none-any.whl"
    missing = set(NEEDED) - set(zipfile.ZipFile(wheel).namelist())
    if missing:
        print(f"not ready: {wheel.name} lacks {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    print(
        f"dist/ has wheel and sdist of {version}; tests/test_release.py has tried such a wheel in a clean environment"
    )
    return 0


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

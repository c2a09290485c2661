"""The core trains without MuJoCo: whoever brings an environment needs none of ours."""

import subprocess
import sys
from pathlib import Path

LINES = [
    "train --env envs.least:make --device cpu --num-envs 12 --iterations 2 --out r --algo ppo",
    "evaluate r --device cpu --num-envs 2",
    "report r",
    "train DeceptiveReach --device cpu --iterations 1 --out s",
    "train Hopper --device cpu --out t",
    "record s",
    "play s",
]
BLOCKED = f"""
import sys

sys.modules.update(dict.fromkeys(("mujoco", "mujoco_warp", "warp")))  # as None, which no import finds
sys.path.insert(0, sys.argv[1])

from echelon.cli import main

print("codes", [main(line.split()) for line in {LINES}])
"""


def test_what_needs_no_simulator_works_and_the_rest_says_what_it_needs(tmp_path: Path) -> None:
    """In a process that cannot import one."""
    words = [sys.executable, "-c", BLOCKED, str(Path(__file__).parent)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.endswith("codes [0, 0, 0, 0, 2, 2, 2]\n"), done.stderr
    assert (tmp_path / "r" / "report" / "index.html").exists()
    wanted = (("Hopper", "mujoco"), ("echelon record", "mujoco"), ("echelon play", "mujoco"))
    assert done.stderr.splitlines()[-3:] == [
        f"echelon: {what} needs the package {package}, which is not installed; "
        "pip install -e '.[mujoco]' in Echelon's clone"
        for what, package in wanted
    ]

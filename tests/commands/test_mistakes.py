"""Wrong command lines and the one sentence that answers each: `mistakes.txt`, a line each."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import contextlib, io, json, shlex, sys
from echelon import cli
for number, line in enumerate(json.load(sys.stdin)):
    said, written = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(written):
        code = cli.main(shlex.split(line))
    slow = [name for name in ("torch", "mujoco", "tensorboard") if name in sys.modules]
    print(json.dumps([code, said.getvalue(), written.getvalue(), slow]))
"""


def test_a_mistake_is_one_sentence_at_once(tmp_path: Path) -> None:
    """Exactly this one, and nothing else happens. Those above the empty line import nothing slow."""
    quick, slow = (Path(__file__).parent / "mistakes.txt").read_text().split("\n\n")
    cases = [line.split("  ->  ") for line in [*quick.splitlines(), *slow.splitlines()]]
    lines = json.dumps([line for line, _ in cases])
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(answer) for answer in done.stdout.splitlines()]
    wrong = [
        f"{line}  ->  {code} {said!r} {written!r} {imported}"
        for number, ((line, sentence), (code, said, written, imported)) in enumerate(zip(cases, found, strict=True))
        if (code, said, written) != (2, f"echelon: {sentence}\n", "") or (imported and number < len(quick.splitlines()))
    ]
    assert not wrong, "\n".join(wrong)
    assert list(tmp_path.iterdir()) == []

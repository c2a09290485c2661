"""SIGKILL in the middle of saving never costs a checkpoint that was reported as saved."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# One interpreter forks the savers, so that torch is imported once. A saver writes the iterations it has finished into
# a pipe; its state names the iteration in a number and in every element of a tensor.
SCRIPT = """
import os, random, signal, sys, time
import torch
from pathlib import Path
from echelon.config import TrainConfig
from echelon.runs.checkpoint import find, save
from echelon.runs.folder import RunFolder

torch.set_num_threads(1)
folder = RunFolder(Path(sys.argv[1]), TrainConfig(keep_checkpoints=2))
random.seed(0)

def refuse(text):
    sys.exit(text)

last = 0
for attempt in range(15):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        for iteration in range(last + 1, 10**6):
            for _ in range(2):  # the second time it replaces
                state = {"i": iteration, "x": torch.full((20000,), float(iteration))}
                save(folder, iteration, state, float(-iteration))
            os.write(writer, b"%08d" % iteration)
    os.read(reader, 8)
    time.sleep(random.uniform(0, 0.06))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(writer)
    reported = last + 1
    while chunk := os.read(reader, 8):
        reported = int(chunk)
    os.close(reader)
    found = find(folder, "newest", refuse)
    assert found.iteration in (reported, reported + 1), (found.iteration, reported)
    assert found.state["i"] == found.iteration
    assert found.state["x"].eq(found.iteration).all()
    last = found.iteration
save(folder, last + 1, {"i": 0}, 0.0)
print("survived", last, sorted(os.listdir(folder.checkpoints)))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to kill a saver")
def test_sigkill_while_saving_in_a_loop(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("survived"), done.stdout
    assert "." not in done.stdout  # no leftovers once a save has come through

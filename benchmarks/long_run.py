"""What a run of 100,000 iterations takes on the disk, how long it takes to resume, and a report of five such runs.

A short run is trained, and the rest of its metrics is drawn at random around what it logged: each number that moved in
the short run moves as much, each that stood still stands still.

    python benchmarks/long_run.py --algo pbt
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from command import command, markdown, options

from echelon.logging.metrics import MetricsWriter
from echelon.runs import checkpoint
from echelon.runs.distances import DistanceWriter, read_distances
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics

SHORT = 40
SIZES = ["--num-envs", "96", "--policies", "6", "--device", "cpu", "--checkpoint-every", "100000"]
STEADY = ("pbt/", "length/")
"""Metrics that move only when a member is replaced, or never."""


def echelon(*words: str) -> tuple[float, float, float]:
    """Seconds that passed, seconds that all cores computed, and GB that a command took."""
    before = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "echelon.cli", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"echelon {' '.join(words)} failed")
    return time.perf_counter() - before, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6


def lines(known: list[dict[str, float]], iterations: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    last = known[-1]
    moving = {name for name in last if len({line.get(name) for line in known}) > 1 and not name.startswith(STEADY)}
    for iteration in range(len(known) + 1, iterations + 1):
        drawn = rng.choice(known[len(known) // 2 :])
        line: dict[str, Any] = {}
        for name, value in drawn.items():
            if name in ("iteration", "env_steps", "gradient_steps"):
                line[name] = int(last[name]) // len(known) * iteration
            else:
                line[name] = value * rng.gauss(1.0, 0.3) if name in moving else last.get(name, value)
        line["wall_s"] = 0.31 * iteration
        yield line


def lengthen(folder: RunFolder, iterations: int, seed: int) -> None:
    """Give a run metrics, KL matrices and a checkpoint of so many iterations."""
    rng = random.Random(seed)
    known, matrix = read_metrics(folder), read_distances(folder)[-1]["kl"]
    distances = DistanceWriter(folder, SHORT)
    with MetricsWriter(folder, SHORT) as writer:
        for line in lines(known, iterations, rng):
            writer.write(line)
            if line["iteration"] % folder.config.diagnostics.every == 0:
                noisy = [[value * rng.gauss(1.0, 0.3) for value in row] for row in matrix]
                distances.write(line["iteration"], line["env_steps"], noisy)
    state = checkpoint.load(folder, "newest").state
    state["trainer"]["iteration"] = iterations
    checkpoint.save(folder, iterations, state)


def megabytes(*paths: Path) -> float:
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files) / 1e6


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--algo", default="cpo")
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    measured: dict[str, Any] = {"algo": given.algo, "iterations": given.iterations}

    def note(what: str, found: tuple[float, ...]) -> None:
        measured.update(zip((f"{what}, s", f"{what}, CPU s", f"{what}, GB"), found, strict=True))

    with tempfile.TemporaryDirectory() as place:
        run = Path(place, "runs", f"CartpoleSwingup-{given.algo}-s0")
        order = ["train", "CartpoleSwingup", "--algo", given.algo, *SIZES, "--out", str(run), "--iterations"]
        echelon(*order, str(SHORT))
        before = time.perf_counter()
        lengthen(RunFolder.open(run), given.iterations, seed=0)
        measured["writing an iteration, ms"] = 1e3 * (time.perf_counter() - before) / given.iterations
        measured["metrics, MB"] = megabytes(run / "metrics.jsonl", run / "metrics")
        measured["tensorboard, MB"] = megabytes(run / "tensorboard")
        measured["all but checkpoints, MB"] = megabytes(run) - megabytes(run / "checkpoints")
        note("resume", echelon(*order, str(given.iterations + 1)))
        for number in range(1, given.runs):
            shutil.copytree(run, run.with_name(f"CartpoleSwingup-{given.algo}-s{number}"))
        note(f"report of {given.runs}", echelon("report", str(run.parent)))
    print(markdown(list(measured), [[f"{x:.2f}" if isinstance(x, float) else x for x in measured.values()]]))


if __name__ == "__main__":
    command(main)

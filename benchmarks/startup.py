"""How long does `echelon train TASK` take from the start of its process to the end of its first iteration? Twice.

    python benchmarks/startup.py AllegroHand ShadowHand --cache /tmp/fresh --json results/startup/h200.jsonl
    python benchmarks/startup.py Hopper --device cpu

The second start finds the kernels that the first one compiled. With `--cache`, all kernel caches lie in that folder: if
it does not exist yet, the first start is that of a new machine, but for files the operating system holds in memory.
Without it they are the user's own. `third_s` is when the first replayed iteration ends: the second one is recorded.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from command import Row, append, command, options

CACHES = {
    "WARP_CACHE_PATH": "warp",
    "CUDA_CACHE_PATH": "cuda",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
}
"""Where Warp, the driver, Triton and torch's compiler keep what they compiled."""
ITERATIONS = 3


def start(task: str, flags: Sequence[str], environment: Mapping[str, str]) -> dict[str, float]:
    """Seconds from the start of a process to the end of its first and third iteration, and how many it spent before."""
    with tempfile.TemporaryDirectory() as place:
        words = [sys.executable, "-m", "echelon.cli", "train", task, f"--iterations={ITERATIONS}", f"--out={place}/run"]
        began = time.perf_counter()
        process = subprocess.Popen([*words, *flags], env=dict(environment), stdout=subprocess.DEVNULL)
        try:
            lines = follow(Path(place, "run", "metrics.jsonl"), process)
            ends = [(time.perf_counter() - began, line) for line in lines]
        finally:
            process.terminate()
            code = process.wait()
    if len(ends) < ITERATIONS:
        sys.exit(f"error: training {task} ended with status {code} after {len(ends)} iterations, as said above")
    first, metrics = ends[0]
    return {"first_s": first, "third_s": ends[-1][0], "before_training_s": first - metrics["wall_s"]}


def follow(file: Path, process: subprocess.Popen[bytes]) -> Iterator[Row]:
    """Lines of metrics as they are written, until all are there or the process has ended."""
    seen = 0
    while seen < ITERATIONS:
        over = process.poll() is not None  # asked before reading: what it wrote last must not be missed
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        yield from map(json.loads, lines[seen:])
        seen = len(lines)
        if over:
            return
        time.sleep(0.01)


def measure(task: str, args: argparse.Namespace) -> Row:
    """Some starts on the same caches."""
    environment, found = dict(os.environ), {"task": task, "algo": args.algo, "device": args.device}
    if args.cache:
        environment |= {name: str(args.cache.resolve() / folder) for name, folder in CACHES.items()}
        found["first_start_is_cold"] = not args.cache.exists()
        args.cache.mkdir(parents=True, exist_ok=True)
    flags = [f"--algo={args.algo}", f"--device={args.device}"]
    flags += [f"--num-envs={args.num_envs}"] if args.num_envs else []
    return found | {"num_envs": args.num_envs, "starts": [start(task, flags, environment) for _ in range(args.starts)]}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--algo", default="cpo")
    parser.add_argument("--num-envs", type=int, help="the preset's unless given")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--cache", type=Path, help="folder for all kernel caches")
    parser.add_argument("--json", type=Path, help="append a line per task to this file")
    args = parser.parse_args()
    for task in args.tasks:
        row = measure(task, args)
        print(json.dumps(row), flush=True)
        append(args.json, [row])


if __name__ == "__main__":
    command(main)

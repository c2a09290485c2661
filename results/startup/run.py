"""How long does `echelon train TASK` take from the start of its process to the end of its first iteration? Twice.

    PYTHONPATH=benchmarks python results/startup/run.py AllegroHand ShadowHand --cache /tmp/fresh --json results/startup/h200.jsonl
    PYTHONPATH=benchmarks python results/startup/run.py Hopper --device cpu

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
from collections.abc import Mapping, Sequence
from pathlib import Path

from command import Row, append, command, options, read_lines

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
        process = subprocess.Popen([*words, *flags], env=dict(environment), stdout=subprocess.PIPE, text=True)
        last, said = f"{ITERATIONS}/{ITERATIONS} ", process.stdout or ()
        ends = [time.perf_counter() - began for line in said if line.startswith(last)]
        if process.wait() or not ends:
            sys.exit(f"error: training {task} ended with status {process.returncode}, as said above")
        walls = [line["wall_s"] for line in read_lines(Path(place, "run", "metrics.jsonl"))]
    before = ends[0] - walls[-1]
    return {"first_s": before + walls[0], "third_s": ends[0], "before_training_s": before}


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

"""How much faster are several seeds side by side than one after another? Whole processes, from start to end.

    python benchmarks/seeds.py CartpoleSwingup --seeds 8 --iterations 40 --device cpu
    python benchmarks/seeds.py AllegroHand --seeds 8 --num-envs 4096 --iterations 60 --alone 1 --json h200.json

Both train the same: `echelon train TASK --seeds N` in one process, then `--seed` after `--seed`, a process each. With
`--alone K` only K of these are run, and their mean is taken N times. Of the iterations, `--warm-up` are left out of the
second ratio, that of the iterations alone: starting, compiling and recording is a process's own.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from command import Row, command, markdown, options, read_lines


def timed(task: str, flags: Sequence[str], out: Path, run: Path, warm_up: int) -> Row:
    """Seconds of a process, and of its iterations after the first ones, by the metrics of one run."""
    words = [sys.executable, "-m", "echelon", "train", task, *flags, f"--out={out}"]
    began = time.perf_counter()
    done = subprocess.run(words, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"error: {' '.join(words)} ended with status {done.returncode}")
    walls = [line["wall_s"] for line in read_lines(run / "metrics.jsonl")]
    return {"process_s": seconds, "iteration_s": (walls[-1] - walls[warm_up - 1]) / (len(walls) - warm_up)}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("task")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--alone", type=int, help="how many of them to train alone (default: all)")
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--num-envs", type=int)
    parser.add_argument("--algo", default="ppo")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    flags = [f"--algo={args.algo}", f"--device={args.device}", f"--iterations={args.iterations}"]
    flags += [f"--num-envs={args.num_envs}"] if args.num_envs else []
    flags += [f"--checkpoint-every={args.iterations}"]
    alone = args.alone or args.seeds
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        # First one that nobody counts: it compiles what the machine has not compiled yet.
        timed(args.task, [*flags[:2], *flags[3:-1], "--iterations=11"], place / "first", place / "first", 10)
        together = timed(
            args.task, [*flags, f"--seeds={args.seeds}"], place / "all", place / "all/seed_0", args.warm_up
        )
        singles = [
            timed(args.task, [*flags, f"--seed={seed}"], place / str(seed), place / str(seed), args.warm_up)
            for seed in range(alone)
        ]
    mean = {key: sum(one[key] for one in singles) / alone for key in together}
    result = {name: getattr(args, name) for name in ("task", "algo", "device", "num_envs", "seeds", "iterations")}
    result |= {"together": together, "alone": singles}
    result["ratio"] = {key: args.seeds * mean[key] / together[key] for key in together}
    rows = [
        (what, f"{together[key]:.3f}", f"{mean[key]:.3f}", f"{result['ratio'][key]:.2f}")
        for key, what in (("process_s", "a process, s"), ("iteration_s", "an iteration, s"))
    ]
    print(f"{args.task}, {args.algo}: {args.seeds} seeds, {args.iterations} iterations")
    print(markdown(("", "all side by side", "one alone", f"{args.seeds} × alone / side by side"), rows))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    command(main)

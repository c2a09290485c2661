"""How long a report of 40 runs with 5,000 iterations each takes, and how large its page is."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from report.synthetic import write_run

from echelon.config import AdversaryConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=5000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for task in ("CartpoleSwingup", "Hopper"):
            for seed in range(5):
                for algo in ("ppo", "pbt", "sapg"):
                    write_run(Path(folder), algo, task=task, seed=seed, iterations=given.iterations)
                coef = AdversaryConfig(coef=0.01)
                write_run(Path(folder), "cpo", task=task, seed=seed, iterations=given.iterations, adversary=coef)
        metrics = sum(path.stat().st_size for path in Path(folder).glob("*/metrics.jsonl"))
        before, start = os.times(), time.perf_counter()
        subprocess.run([sys.executable, "-m", "echelon.cli", "report", folder], check=True, stdout=subprocess.DEVNULL)
        seconds, after = time.perf_counter() - start, os.times()
        computed = after.children_user + after.children_system - before.children_user - before.children_system
        size = (Path(folder) / "report" / "report.html").stat().st_size
    print(f"40 runs, {metrics / 1e6:.0f} MB of metrics: {seconds:.1f} s; all cores together computed {computed:.1f} s")
    print(f"page: {size / 1e6:.2f} MB, without player and replays")


if __name__ == "__main__":
    main()

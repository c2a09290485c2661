"""Attack everything that a run depends on, and print what held: `make chaos`, or

PYTHONPATH=tests python -m chaos                 every attack, as often as the table says
PYTHONPATH=tests python -m chaos kills --tries 20 --seed 7
PYTHONPATH=tests python -m chaos --sample        a few tries of each
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

import torch
from chaos import flags, folders, ranks, runs

ATTACKS = {
    "kills": (runs.kills, 200, 2, "SIGKILL while a run starts, resumes, trains or saves"),
    "kills-ranks": (ranks.storm, 20, 1, "SIGKILL of one of two ranks or nodes under torchrun"),
    "disk": (runs.disk, 100, 2, "a disk that is full, read-only or broken"),
    "disk-real": (runs.failing_disk, 40, 2, "a file system that becomes read-only or fails"),
    "moved": (runs.moved, 60, 3, "the run folder moved, deleted or replaced"),
    "environments": (runs.environments, 150, 4, "an environment with bad numbers, shapes, types or exceptions"),
    "folders": (folders.attack, 1200, 10, "run folders of strangers, every damage with every reader"),
    "flags": (flags.fuzz, 816, 12, "absurd values of flags"),
    "flags-readers": (flags.fuzz_readers, 150, 3, "the same of commands that read a run"),
}
"""The attack, its tries, those of a sample, and what it is."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", default=[], help=", ".join(ATTACKS))
    parser.add_argument("--tries", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)  # or a child that is forked would wait for threads it does not have
    failed = 0
    print("| attack | tries | failures | seconds |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        for name in given.attacks or ATTACKS:
            attack, many, few, words = ATTACKS[name]
            (place := Path(home) / name).mkdir()
            tries, began = given.tries or (few if given.sample else many), time.monotonic()
            outcome = attack(place, tries, random.Random(f"{name} {given.seed}"))
            seconds = time.monotonic() - began
            print(f"| {words} | {outcome.tries} | {len(outcome.failures)} | {seconds:.0f} |", flush=True)
            for failure in outcome.failures:
                print(f"{name}: {failure}", file=sys.stderr, flush=True)
            failed += len(outcome.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

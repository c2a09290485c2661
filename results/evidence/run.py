"""Work off the plan of README.md: every run once, some at a time on one GPU, and a table of what is known.

    PYTHONPATH=benchmarks python results/evidence/run.py --minutes 25 --together 3
    PYTHONPATH=benchmarks python results/evidence/run.py --table

Each run is trained in legs, and scored after each by `echelon evaluate` on new episodes of the task's own starts. A leg
that ends appends a line to ledger.jsonl and leaves every tenth line of metrics in a folder of its own; a leg in the
ledger is not repeated. No leg is started that would not end in time. On a machine that keeps its files, a run that was
cut continues; on another it starts again.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

from command import command, markdown
from train_until import first_to_meet, keep

from echelon import RunFolder, read_metrics
from echelon.errors import UserError
from echelon.runs.folder import git_revision

HERE = Path(__file__).parent
TASK, LEGS, SEEDS, EPISODES = "AllegroKukaRegrasping", (200_000_000, 400_000_000), (101, 102, 103), 1024
PUBLISHED = ("--preset", "paper", "--precision", "bf16")
NOISE = ("--noise.sigma", "0.4", "--noise.actions", "7:23")
QUIET = (*PUBLISHED, *NOISE, "--update.clip", "0.2", "--update.kl-rows", "own")
ARMS = {  # CPO's minibatches are twice as large, so that all make 16 or 32 optimizer steps per iteration
    "ppo": (*PUBLISHED, "--algo", "ppo", "--update.minibatches", "8"),
    "sapg": (*PUBLISHED, "--algo", "sapg", "--update.minibatches", "8"),
    "cpo": (*PUBLISHED, "--algo", "cpo", "--update.minibatches", "8"),
    "ppo_quiet": (*QUIET, "--algo", "ppo", "--update.minibatches", "16"),
    "sapg_quiet": (*QUIET, "--algo", "sapg", "--update.minibatches", "16"),
    "cpo_quiet": (*QUIET, "--algo", "cpo", "--update.minibatches", "16"),
    "ppo_gripped": (*QUIET, "--algo", "ppo", "--update.minibatches", "16", "--env.gripped-starts", "0.5"),
}
RUNS = [(seed, arm) for seed in SEEDS for arm in ARMS]
LEDGER = HERE / "ledger.jsonl"
lock = threading.Lock()


def ledger() -> list[dict]:
    return [json.loads(line) for line in LEDGER.read_text().splitlines()] if LEDGER.exists() else []


def missing(seed: int, arm: str) -> list[int]:
    """Legs of a run that the ledger lacks."""
    done = {line["leg"] for line in ledger() if (line["seed"], line["arm"]) == (seed, arm)}
    return [leg for leg in LEGS if leg not in done]


def train(seed: int, arm: str, runs: Path, until: float, expected: float) -> None:
    """Train the missing legs of a run, as far as there is time."""
    path = runs / f"{TASK}-{arm}-s{seed}"
    for leg in missing(seed, arm):
        if time.monotonic() + expected > until:
            return
        words = ["train", TASK, *ARMS[arm], "--seed", str(seed), "--env-steps", str(leg), "--out", str(path)]
        for order in (words, ["evaluate", str(path), "--num-envs", str(EPISODES)]):
            with path.with_name(f"{path.name}.log").open("a") as log:
                subprocess.run([sys.executable, "-m", "echelon", *order], stdout=log, stderr=log, check=True)
        scores = json.loads((path / "evaluation.json").read_text())
        leader = [s for s in scores["scores"] if s["policy"] == scores["leader"] and s["mode"] == "deterministic"]
        lines = read_metrics(path)
        found = {"seed": seed, "arm": arm, "leg": leg, "revision": git_revision(), "wall_s": lines[-1]["wall_s"]}
        found |= {"sigma": lines[-1]["sigma/policy_0"], **leader[0]["extra"]}
        met = first_to_meet(lines, "successes/leader", 1)
        found["first_success"] = met and met["env_steps"]
        with lock:
            keep(RunFolder.open(path), HERE / path.name)
            with LEDGER.open("a") as file:
                file.write(json.dumps(found) + "\n")


def work(args: argparse.Namespace) -> None:
    """Train `--together` runs at a time, in the plan's order."""
    args.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * args.minutes
    waiting = [run for run in RUNS if missing(*run) and run[1] in args.arms]

    def next_run() -> tuple[int, str] | None:
        with lock:
            return waiting.pop(0) if waiting else None

    def worker() -> None:
        while (run := next_run()) and time.monotonic() + args.expected < until:
            try:
                train(*run, args.out, until, args.expected)
            except subprocess.CalledProcessError as error:
                print(f"{run}: exit code {error.returncode}", flush=True)

    threads = [threading.Thread(target=worker) for _ in range(args.together)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def table() -> str:
    """Objects per episode after each leg, and steps to one success, by seed."""
    rows, lines = [], ledger()
    for arm in ARMS:
        cells = [arm]
        for leg in LEGS:
            found = [line for line in lines if (line["arm"], line["leg"]) == (arm, leg)]
            cells.append(", ".join(f"{line['successes']:.3g}" for line in found))
            cells.append(", ".join(f"{line['sigma']:.2f}" for line in found))
        firsts = [line["first_success"] for line in lines if (line["arm"], line["leg"]) == (arm, LEGS[-1])]
        rows.append([*cells, ", ".join("-" if x is None else f"{x / 1e6:.0f}" for x in firsts)])
    headings = [text for leg in LEGS for text in (f"objects at {leg / 1e6:.0f} M", "σ")]
    return markdown(("arm", *headings, "one success in training, M steps"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print what is known instead of training")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="arms to work on; all by default")
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--together", type=int, default=3, help="trainings at a time; CUDA's MPS lets them share")
    parser.add_argument("--expected", type=float, default=400, help="seconds of a leg, with the others beside it")
    parser.add_argument("--out", type=Path, default=Path("runs/evidence"), help="for run folders")
    args = parser.parse_args()
    if not args.table:
        import torch

        if not torch.cuda.is_available():
            raise UserError("the plan's runs need a CUDA GPU, and torch sees none")
        work(args)
    print(table())


if __name__ == "__main__":
    command(main)

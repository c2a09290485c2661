"""Every rate and ratio that is claimed of training speed on one GPU, in one command.

    python benchmarks/speed.py --json results/speed/h200.jsonl      # about ten minutes on an H200
    python benchmarks/speed.py --only AllegroHand-cpo --runs 1

Each case is a process of its own (`rates.py`, without random steps), and all cases are measured once before any is
measured again. Prints a table and the ratios between algorithms when it is done; `--json` gets a line for each
measurement as it comes, and `--table FILE` prints the table again from such a file.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from command import command

CASES: dict[str, tuple[str, ...]] = {
    "AllegroHand-cpo": ("AllegroHand", "--algo=cpo", "--adversary=on"),
    "AllegroHand-cpo-no-adversary": ("AllegroHand", "--algo=cpo", "--adversary=off"),
    "AllegroHand-sapg": ("AllegroHand", "--algo=sapg"),
    "AllegroHand-ppo": ("AllegroHand", "--algo=ppo"),
    "ShadowHand-cpo": ("ShadowHand", "--algo=cpo"),
    "Humanoid-cpo": ("Humanoid", "--algo=cpo"),
    "Anymal-cpo": ("Anymal", "--algo=cpo"),
    "AllegroKukaReorientation-cpo": ("AllegroKukaReorientation", "--algo=cpo"),
    "FrankaCubeStack-cpo": ("FrankaCubeStack", "--algo=cpo"),
}
ITERATION_RATIOS = {
    "CPO's iteration over SAPG's, without adversarial reward": ("AllegroHand-cpo-no-adversary", "AllegroHand-sapg"),
    "CPO's iteration over SAPG's, with adversarial reward": ("AllegroHand-cpo", "AllegroHand-sapg"),
    "SAPG's iteration over PPO's": ("AllegroHand-sapg", "AllegroHand-ppo"),
}
Found = dict[str, Any]


def measure(case: str, run: int, args: argparse.Namespace) -> Found | None:
    """One case in a process of its own; None where that failed."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "found.json"
        command = [sys.executable, str(Path(__file__).with_name("rates.py")), *CASES[case], "--random-steps=0"]
        passed = ("num_envs", "iterations", "seconds", "device")
        command += [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in passed]
        done = subprocess.run([*command, f"--json={file}"], stdout=subprocess.DEVNULL)
        return {"case": case, "run": run} | json.loads(file.read_text()) if done.returncode == 0 else None


def table(rows: Sequence[Found]) -> str:
    """Markdown: a line per case, its runs side by side."""
    lines = [
        "| case | physics at rest, M steps/s | physics as in training | rollout | training "
        "| training / physics at rest | / as in training | collect / targets / update, ms "
        "| roofline, ms | update / roofline | GiB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(row["case"] for row in rows):
        runs = [row for row in rows if row["case"] == case]
        cells = [
            *(
                each(runs, lambda row, name=name: f"{row[name] / 1e6:.2f}")
                for name in ("physics", "physics_in_training", "rollout", "training")
            ),
            each(runs, lambda row: f"{row['training'] / row['physics']:.0%}"),
            each(runs, lambda row: f"{row['training'] / row['physics_in_training']:.0%}"),
            each(runs, lambda row: " / ".join(f"{row[f'ms_{part}']:.1f}" for part in ("collect", "targets", "update"))),
            f"{runs[0]['roofline_ms']:.1f}",
            each(runs, lambda row: f"{row['update_over_roofline']:.2f}"),
            each(runs, lambda row: "-" if row["gib"] is None else f"{row['gib']:.1f}"),
        ]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def each(runs: Sequence[Found], text: Callable[[Found], str]) -> str:
    """What is said of every run."""
    return ", ".join(text(row) for row in runs)


def ratios(rows: Sequence[Found]) -> list[str]:
    """Iterations of one algorithm over another's, a line each: run by run, and of the medians."""
    times: dict[str, dict[int, float]] = {}
    for row in rows:
        times.setdefault(row["case"], {})[row["run"]] = row["ms_iteration"]
    lines = []
    for name, (above, below) in ITERATION_RATIOS.items():
        if above in times and below in times:
            one, other = times[above], times[below]
            runs = ", ".join(f"{one[run] / other[run]:.3f}" for run in one if run in other)
            whole = statistics.median(one.values()) / statistics.median(other.values())
            lines.append(f"* {name}: {whole:.3f} ({runs})")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--num-envs", type=int, default=24576)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--seconds", type=float, default=1.5, help="of physics alone, and of the rollout")
    parser.add_argument("--json", type=Path, help="append a line per measurement to this file")
    parser.add_argument("--table", type=Path, help="measure nothing; print what is in this file")
    args = parser.parse_args()
    if args.table:
        report([json.loads(line) for line in args.table.read_text().splitlines()])
        return
    rows: list[Found] = []
    failed: list[str] = []
    for run in range(args.runs):
        for case in args.only:
            found = measure(case, run, args)
            if found is None:  # said why on standard error; the other cases still count
                failed.append(case)
                continue
            rows.append(found)
            print(json.dumps(found), flush=True)
            if args.json:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                with args.json.open("a") as file:
                    file.write(json.dumps(found) + "\n")
    report(rows)
    if failed:
        sys.exit(f"error: failed, as said above: {', '.join(failed)}")


def report(rows: Sequence[Found]) -> None:
    print("", table(rows), "", *ratios(rows), sep="\n", flush=True)


if __name__ == "__main__":
    command(main)

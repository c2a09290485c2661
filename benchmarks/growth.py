"""How rates and memory grow with the number of environments: physics alone, rollout with the policy, full training.

    python benchmarks/growth.py AllegroHand --json results/growth/AllegroHand.json
    python benchmarks/growth.py Humanoid --device cpu --num-envs 12 24 --iterations 2 --seconds 0.5

A process for each size, so that memory is that of one. A size that does not split into the equal minibatches of the
task's preset is replaced by the nearest that does, which the table shows. What is measured: `benchmarks/rates.py`.
`python docs/draw_growth.py` draws the plot.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import rates
import torch
from command import command

from echelon.config import ALGORITHMS, TrainConfig
from echelon.config.checks import require_device
from echelon.errors import UserError
from echelon.presets import preset
from echelon.training.resolve import resolve

SIZES = (4096, 8192, 16384, 24576, 49152, 98304)


def fits(config: TrainConfig, num_envs: int) -> bool:
    """Whether so many environments split into equal minibatches, and between the members of a population."""
    try:
        resolve(replace(config, num_envs=num_envs))
    except UserError:
        return False
    return True


def nearest_fit(config: TrainConfig, num_envs: int) -> int:
    """The nearest size that trains, the smaller of two as near."""
    for away in range(num_envs):
        for size in (num_envs - away, num_envs + away):
            if fits(config, size):
                return size
    raise UserError(f"no number of environments near {num_envs} splits into the minibatches of {config.task}")


def measure(args: argparse.Namespace, num_envs: int) -> dict[str, Any]:
    config = replace(preset(args.task), algo=args.algo)
    prepared = rates.prepare(replace(config, num_envs=nearest_fit(config, num_envs)), torch.device(args.device))
    return rates.measure(prepared, args.seconds, args.iterations) | {"device": args.device}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| environments | physics at rest, k steps/s | physics as in training | rollout | training "
        "| training / physics as in training | KiB per environment: physics, training | GiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['num_envs']:,} | "
            + " | ".join(
                f"{row[name] / 1e3:,.1f}" for name in ("physics", "physics_in_training", "rollout", "training")
            )
            + f" | {row['training'] / row['physics_in_training']:.0%} "
            + (
                "| - | - |"
                if row["gib"] is None
                else f"| {per_env(row, 'physics_gib'):.0f}, {per_env(row, 'gib'):.0f} | {row['gib']:.1f} |"
            )
        )
    return "\n".join(lines)


def per_env(row: dict[str, Any], name: str) -> float:
    """KiB of the device that an environment takes."""
    return row[name] * 2**20 / row["num_envs"]


def in_a_process(num_envs: int) -> dict[str, Any] | None:
    """This very command for one size; what it found, or None where it failed."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "size.json"
        done = subprocess.run([sys.executable, *sys.argv, "--only", str(num_envs), "--json", str(file)])
        return json.loads(file.read_text())[0] if done.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--num-envs", type=int, nargs="+", default=SIZES)
    parser.add_argument("--algo", choices=ALGORITHMS, default="cpo")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--json", type=Path, help="where to write what was found, a list with an entry per size")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    require_device(args.device)
    if args.only:
        args.json.write_text(json.dumps([measure(args, args.only)]))
        return
    rows: list[dict[str, Any]] = []
    for num_envs in args.num_envs:
        found = in_a_process(num_envs)
        if found is None:
            raise UserError(f"{num_envs} environments failed, as said above; {len(rows)} sizes were measured before")
        rows.append(found)
        print(json.dumps(found), flush=True)
        if args.json:  # after every size: the largest may not fit the device
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"\n{args.task}, {args.algo}\n\n{table(rows)}")


if __name__ == "__main__":
    command(main)

"""Which kernels does an iteration spend its time in on a CUDA GPU? Collecting, targets and update, each by itself.

    python benchmarks/kernels.py AllegroHand AllegroKukaReorientation [--algo cpo] [--top 40] [--out FOLDER]

Medians of some iterations first, then for each part the kernels of one replay, the longest first: milliseconds in all,
how often, and the name. Sums exceed a part's time where kernels run side by side. They fall short of it where the
profiler misses kernels inside conditional graph nodes, as in the loops of MuJoCo Warp's solver: so trust the kernels of
targets and update, and of collecting only those outside the solver. `--out` keeps all kernels, in a file per task.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from command import command, options
from speed import iterations, wait
from torch.profiler import ProfilerActivity, profile
from trainer_parts import graphs, make_env, settings, train

from echelon.config.checks import require_device

NAME = 160
"""Characters of a kernel's name that are shown."""
Kernel = tuple[float, int, str]
"""Milliseconds, calls and name."""


def kernels(run: Callable[[], object], device: torch.device) -> list[Kernel]:
    """Those of a call, the longest first."""
    on_cuda = device.type == "cuda"
    wait(device)
    with profile(activities=[ProfilerActivity.CUDA if on_cuda else ProfilerActivity.CPU]) as found:
        run()
        wait(device)
    spent: dict[str, list[float]] = defaultdict(list)
    for event in found.events() or []:
        if event.device_type.name == device.type.upper():
            spent[event.name].append((event.device_time_total if on_cuda else event.self_cpu_time_total) / 1000)
    return sorted(((sum(times), len(times), name) for name, times in spent.items()), reverse=True)


def table(title: str, rows: list[Kernel], top: int | None = None) -> str:
    whole = f"{title}: {sum(row[0] for row in rows):.1f} ms in {sum(row[1] for row in rows)} kernels"
    return "\n".join([whole, *(f"{ms:9.3f} {count:6d}  {name[:NAME]}" for ms, count, name in rows[:top])])


def measure(task: str, args: argparse.Namespace) -> None:
    device, config = torch.device(args.device), settings(task, args.algo, args.num_envs)
    trainer = train(make_env(config, device), config)
    medians = "  ".join(
        f"{name.removeprefix('ms_')} {ms:.2f}" for name, ms in iterations(trainer, args.iterations).items()
    )
    print(f"\n{task}, {args.algo}, {args.num_envs} environments, ms: {medians}", flush=True)
    found = {f"{task} {name}": kernels(run, device) for name, run in graphs(trainer).items()}
    for title, rows in found.items():
        print(table(title, rows, args.top), flush=True)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        text = "\n\n".join(table(title, rows) for title, rows in found.items())
        (args.out / f"{task}-{args.algo}.txt").write_text(f"{medians}\n\n{text}\n")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--algo", default="cpo")
    parser.add_argument("--num-envs", type=int, default=24576)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--top", type=int, default=20, help="kernels of each part that are printed")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    require_device(args.device)
    for task in args.tasks:
        measure(task, args)


if __name__ == "__main__":
    command(main)

"""Does the model of scale predict what several processes do? On CPUs, by gloo; each process has as many environments.

    python benchmarks/scale.py CartpoleSwingup --num-envs 256 --json results/scale/cpu.jsonl

Rates of one process and the speed of gloo between two are measured. From them `echelon.planning` predicts an iteration
of 1, 2 and 4 ranks, with a growing and with a fixed minibatch, which is then measured. Processes that share cores slow
each other down, which GPUs do not: if an iteration takes W seconds of computing, R of them take at least R W / cores.
A sum is timed after some work, as training meets it: two processes that do nothing else are always awake.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from command import append, command, options

from echelon.commands.train import resolve_flags
from echelon.planning.links import Links
from echelon.planning.model import Rates, fixed_minibatch, growing_minibatch
from echelon.planning.rates import measured

SMALL, LARGE = 4, 4_000_000
"""Bytes of two sums, of which latency and rate are found."""
TIMES = 100
SKIPPED = 5
"""First iterations of a run, which are not counted."""
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("task", nargs="?", default="CartpoleSwingup")
    parser.add_argument("--num-envs", type=int, default=256, help="of each process")
    parser.add_argument("--algo", default="ppo")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--json", type=Path, help="where to append the figures")
    given = parser.parse_args()

    flags = ["--algo", given.algo, "--device", "cpu"]
    resolved = resolve_flags(given.task, [*flags, "--num-envs", str(given.num_envs)])
    began = time.process_time(), time.perf_counter()
    rates = measured(resolved, given.iterations)
    busy = (time.process_time() - began[0]) / (time.perf_counter() - began[1])
    links = gloo_links()
    print(
        f"collect {1e3 * rates.collect_s:.1f} ms, update {1e3 * rates.update_s:.1f} ms, floor of a step "
        f"{1e3 * rates.step_floor_s:.2f} ms, {busy:.2f} cores busy; "
        f"gloo {links.node_us:.0f} µs a hop, {links.node_gb:.2f} GB/s"
    )
    for ranks in given.ranks:
        shared = on_shared_cores(rates, ranks, busy, len(os.sched_getaffinity(0)))
        for recipe in (growing_minibatch, fixed_minibatch)[: 1 if ranks == 1 else 2]:
            minibatches = resolved.plan.minibatches * (ranks if recipe is fixed_minibatch else 1)
            words = [*flags, "--num-envs", str(ranks * given.num_envs), "--update.minibatches", str(minibatches)]
            found = iteration_seconds(given.task, ranks, given.iterations, words)
            predicted = recipe(shared, ranks, links)
            row = {"task": given.task, "ranks": ranks, "recipe": predicted.recipe, "load": os.getloadavg()[0]}
            row |= {"predicted_ms": 1e3 * predicted.iteration_s, "measured_ms": 1e3 * found}
            print(row, flush=True)
            append(given.json, [row])


def on_shared_cores(rates: Rates, ranks: int, busy: float, cores: int) -> Rates:
    """What each of several processes on one machine does, if one alone keeps `busy` cores busy."""
    slower = max(1.0, ranks * busy / cores)
    return replace(
        rates,
        collect_s=slower * rates.collect_s,
        update_s=slower * rates.update_s,
        step_floor_s=slower * rates.step_floor_s,
    )


def gloo_links() -> Links:
    """The speed of sums between two processes here: each is sent once in full, by one hop there and one back."""
    words = [*TORCHRUN, "--nproc-per-node", "2", __file__, "--gloo"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    small, large = json.loads(done.stdout.splitlines()[-1])
    return Links(node_us=1e6 * small / 2, node_gb=LARGE / max(1e-9, large - small) / 1e9)


def time_gloo() -> None:
    """In each of the two: what a small and a large sum add to the work before them, in seconds."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    weights = torch.randn(64, 64)

    def work() -> None:
        x = weights
        for _ in range(150):
            x = torch.tanh(x @ weights)

    alone = typical(work)
    found = []
    for size in (SMALL, LARGE):
        data = torch.zeros(size // 4)
        dist.barrier()
        found.append(max(0.0, typical(lambda data=data: (work(), dist.all_reduce(data))) - alone))
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def typical(run: Callable[[], object]) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def iteration_seconds(task: str, ranks: int, iterations: int, flags: Sequence[str]) -> float:
    """Median of a run's iterations."""
    start = (*TORCHRUN, "--nproc-per-node", str(ranks)) if ranks > 1 else (sys.executable,)
    with tempfile.TemporaryDirectory() as place:
        words = [
            *start,
            "-m",
            "echelon",
            "train",
            task,
            *flags,
            "--iterations",
            str(SKIPPED + iterations),
            "--out",
            f"{place}/run",
        ]
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        lines = [json.loads(line) for line in (Path(place) / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = lines[0]["env_steps"]
    return statistics.median(steps / line["fps/total"] for line in lines[SKIPPED:])


if __name__ == "__main__":
    command(time_gloo if sys.argv[1:] == ["--gloo"] else main)

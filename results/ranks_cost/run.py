"""What it costs to train together.

    PYTHONPATH=benchmarks python results/ranks_cost/run.py                              # on a CUDA GPU: the exchanges of an iteration
    PYTHONPATH=benchmarks python results/ranks_cost/run.py --device cpu --sizes 1 2 4   # weak scaling: as many environments for each process

On a GPU, a trainer alone and one with a NCCL communicator of one rank take turns, both recorded as graphs; the
difference is what launching the exchanges and scaling the sums costs. What the wires add is not in it. On CPUs,
processes exchange by gloo; with fewer cores than processes they share them, so efficiency is also given per core.
"""

import multiprocessing
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from command import command, options

from echelon.config.checks import choose_device

WARM_UPS = 4


def settings(case: str, device: str) -> Any:
    """A task's, by TASK:ALGO."""
    from echelon.algorithms import find
    from echelon.tasks import preset

    task, _, algo = case.partition(":")
    return replace(preset(task), algo=find(algo or "ppo").name, device=device)


def trainer(case: str, num_envs: int | None, device: str, ranks: Any) -> Any:
    """As `echelon train` would build it; `num_envs` are those of a rank."""
    from echelon.tasks import make
    from echelon.training.setup import set_up_torch
    from echelon.training.trainer import Trainer

    config = settings(case, device)
    each = num_envs or config.num_envs
    config = replace(config, num_envs=each * ranks.size)
    set_up_torch(config)
    env = make(config.task, config.env, each, ranks.device(device), ranks.seed(config.seed), spread_clocks=True)
    return Trainer(env, config, ranks=ranks)


def meet(place: Path, rank: int, size: int) -> Any:
    import torch.distributed as dist

    from echelon.ranks.together import Together

    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=size)
    return Together(rank)


def milliseconds(one: Any, iterations: int) -> list[float]:
    found = []
    for _ in range(iterations):
        began = time.perf_counter()
        one.iterate()  # ends with a read, so the device is done
        found.append(1000 * (time.perf_counter() - began))
    return found


def exchanges(case: str, num_envs: int | None, iterations: int) -> None:
    import torch

    from echelon.ranks import ALONE

    with tempfile.TemporaryDirectory() as place:
        together = meet(Path(place) / "meet", 0, 1)
        together.connect(torch.device("cuda", 0))
        alone, one = (trainer(case, num_envs, "cuda", ranks) for ranks in (ALONE, together))
        for each in (alone, one):
            milliseconds(each, WARM_UPS)
        turns = [(milliseconds(alone, 1)[0], milliseconds(one, 1)[0]) for _ in range(iterations)]
        alone_ms, one_ms = (statistics.median(times) for times in zip(*turns, strict=True))
        cost = statistics.median(b - a for a, b in turns)
        steps, size = one.steps_per_iteration, one.update.optimizer._exchanged.numel() * 4
        buffer = torch.zeros(size // 4, device="cuda")
        name = torch.cuda.get_device_name(0)
        print(f"{case}, {one.layout.num_envs} environments, {name}, medians of {iterations} turns")
        print(f"alone {alone_ms:.2f} ms, with exchanges {one_ms:.2f} ms: {cost:+.3f} ms ({cost / alone_ms:+.2%})")
        print(f"{steps} exchanges of {size / 1e6:.2f} MB and some small ones; one alone takes {_reduce(buffer):.1f} µs")


def _reduce(buffer: Any, repeats: int = 200) -> float:
    """Microseconds of an exchange that is not recorded."""
    import torch

    from echelon.ranks.together import _reduce as reduce

    for _ in range(10):
        reduce(buffer)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        reduce(buffer)
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - began) / repeats


def scaling(case: str, num_envs: int | None, iterations: int, sizes: list[int]) -> None:
    base = None
    print(f"{case}, {os.cpu_count()} cores, medians of {iterations} iterations")
    print("| processes | environments | ms | steps/s | efficiency | per core |\n|---|---|---|---|---|---|")
    for size in sizes:
        with tempfile.TemporaryDirectory() as place:
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            arguments = (Path(place) / "meet", size, case, num_envs, iterations, queue)
            workers = [context.Process(target=_work, args=(rank, *arguments)) for rank in range(size)]
            for worker in workers:
                worker.start()
            median, envs, steps = queue.get(timeout=1200)
            for worker in workers:
                worker.join()
        rate = 1000 * steps / median
        base = base or rate / size
        cores = min(size, os.cpu_count() or 1)
        shares = f"{rate / size / base:.2f} | {rate / cores / base:.2f}"
        print(f"| {size} | {envs} | {median:.1f} | {rate:,.0f} | {shares} |", flush=True)


def _work(rank: int, place: Path, size: int, case: str, num_envs: int | None, iterations: int, queue: Any) -> None:
    from echelon.ranks import ALONE

    ranks = meet(place, rank, size) if size > 1 else ALONE
    one = trainer(case, num_envs, "cpu", ranks)
    milliseconds(one, WARM_UPS)
    found = statistics.median(milliseconds(one, iterations))
    if rank == 0:
        queue.put((found, one.config.num_envs, one.config.steps_per_iteration))
    ranks.leave()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--case", default=None, help="TASK:ALGO (AllegroHand:ppo on cuda, DeceptiveReach:cpo on cpu)")
    parser.add_argument("--num-envs", type=int, default=None, help="of each process")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4])
    given = parser.parse_args()
    choose_device(given.device)
    case = given.case or {"cuda": "AllegroHand:ppo", "cpu": "DeceptiveReach:cpo"}[given.device]
    settings(case, given.device)  # or each process would find out for itself that there is no such task
    if given.device == "cuda":
        exchanges(case, given.num_envs, given.iterations)
    else:
        scaling(case, given.num_envs or 384, given.iterations, given.sizes)


if __name__ == "__main__":
    command(main)

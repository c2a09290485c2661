"""How fast is training, and how much of that is physics? Rates, parts of an iteration and memory, on one GPU.

    python benchmarks/speed.py --json results/speed/h200.jsonl                  # all claims; ten minutes on an H200
    python benchmarks/speed.py --only AllegroHand-pbt AllegroHand-ppo-alone     # a population beside its members
    python benchmarks/speed.py AllegroHand --growth --json results/growth/AllegroHand.jsonl           # other sizes
    python benchmarks/speed.py Humanoid --device cpu --num-envs 12 24 --iterations 2                  # a try
    python benchmarks/speed.py AllegroHand --kernels 20                         # where its time goes
    python benchmarks/speed.py --table results/speed/h200.jsonl                 # what was measured

Each measurement is `echelon bench` in a process of its own, so that memory is that of one, and all cases are measured
once before any is measured again. Rates are control steps per second over all environments. *Physics* is the engine's
substeps from a rollout's states with its controls, *rollout* adds task, policy, resets, scores and storage, *training*
is whole iterations of the task's preset, medians of `--iterations`, with how they split. `--kernels` lists the longest
kernels of collecting, targets and update on standard error: milliseconds in all, how often, and the name. Sums exceed a
part's time where kernels run side by side, and fall short where the profiler misses those in a graph's loops, as in
MuJoCo Warp's solver: `physics.py` shows those.
A number of environments that does not split into the preset's equal minibatches is replaced by the nearest that does.
`python docs/draw_growth.py` draws growth.
"""

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from command import Row, answer, append, command, in_a_process, markdown, options, read_lines
from torch.profiler import ProfilerActivity, profile

from echelon import tasks
from echelon.bench.measure import bench
from echelon.config import TrainConfig
from echelon.config.checks import choose_device
from echelon.errors import UserError
from echelon.tasks import preset
from echelon.training.resolve import resolve
from echelon.training.trainer import Trainer

RATES = ("physics_in_training", "rollout", "training")
FARTHEST = 512
"""Environments by which a number that was asked for may be changed."""
SOME_REWARD = 0.01
"""Adversarial coefficient where it is asked for and the preset has none; time does not depend on it."""
GROWTH = (4096, 8192, 16384, 24576, 49152, 98304)


@dataclass(frozen=True)
class Case:
    """What is trained."""

    task: str
    algo: str = "cpo"
    adversary: str | None = None
    share: int = 1
    """Divides the number of environments."""


CLAIMS = {
    "AllegroHand-cpo": Case("AllegroHand", adversary="on"),
    "AllegroHand-cpo-no-adversary": Case("AllegroHand", adversary="off"),
    "AllegroHand-sapg": Case("AllegroHand", "sapg"),
    "AllegroHand-ppo": Case("AllegroHand", "ppo"),
    "AllegroHand-pbt": Case("AllegroHand", "pbt"),
    "AllegroHand-ppo-alone": Case("AllegroHand", "ppo", share=6),
    "ShadowHand-cpo": Case("ShadowHand"),
    "Humanoid-cpo": Case("Humanoid"),
    "Anymal-cpo": Case("Anymal"),
    "AllegroKukaReorientation-cpo": Case("AllegroKukaReorientation"),
    "FrankaCubeStack-cpo": Case("FrankaCubeStack"),
}
RATIOS = {
    "CPO's iteration over SAPG's": ("ms_iteration", "AllegroHand-cpo-no-adversary", "AllegroHand-sapg"),
    "CPO's iteration over SAPG's, with adversarial reward": ("ms_iteration", "AllegroHand-cpo", "AllegroHand-sapg"),
    "SAPG's iteration over PPO's": ("ms_iteration", "AllegroHand-sapg", "AllegroHand-ppo"),
    "steps per second of a population over those of its members one after another": (
        *("training", "AllegroHand-pbt", "AllegroHand-ppo-alone"),
    ),
}
"""What is divided, and whose by whose."""


def settings(task: str, algo: Any, num_envs: int, adversary: str | None = None) -> TrainConfig:
    """The task's preset for an algorithm, with the adversarial reward as it is there, or `on` or `off`.

    Members of a population all do the preset's work: with mutations, some would take more passes than others.
    """
    config = replace(preset(task), algo=algo, num_envs=num_envs)
    coef = {None: config.adversary.coef, "off": 0.0, "on": config.adversary.coef or SOME_REWARD}[adversary]
    config = replace(config, adversary=replace(config.adversary, coef=coef))
    return replace(config, pbt=replace(config.pbt, mutate_at_start=False))


def wait(device: torch.device) -> None:
    """Wait until the device has done what it was asked to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def list_kernels(config: TrainConfig, top: int) -> str:
    """The longest kernels of each part of an iteration, after a line with their sum."""
    device = choose_device(config.device)
    trainer = Trainer(tasks.maker(config, spread_clocks=True)(config.num_envs, device, config.seed), config)
    on_cuda, lines = device.type == "cuda", []
    for _ in range(3):  # as it is, recorded, replayed for the first time
        trainer.iterate()
    parts: dict[str, Callable[[], object]] = {"collect": trainer._collect, "targets": trainer._prepare}
    for part, run in (parts | {"update": trainer._learn}).items():
        with profile(activities=[ProfilerActivity.CUDA if on_cuda else ProfilerActivity.CPU]) as found:
            run()
            wait(device)
        spent: dict[str, list[float]] = defaultdict(list)
        for event in found.events() or []:
            if event.device_type.name == device.type.upper():
                spent[event.name].append((event.device_time_total if on_cuda else event.self_cpu_time_total) / 1000)
        rows = sorted(((sum(times), len(times), name) for name, times in spent.items()), reverse=True)
        whole = f"{sum(row[0] for row in rows):.1f} ms in {sum(row[1] for row in rows)} kernels"
        lines += [f"{config.task} {part}: {whole}", *(f"{ms:9.3f} {n:6d}  {name[:160]}" for ms, n, name in rows[:top])]
    return "\n".join(lines)


def measure(order: Row) -> Row:
    """All figures of a case, in a process of its own."""
    case = Case(**order["case"])
    config = settings(case.task, case.algo, order["num_envs"] // case.share, case.adversary)
    config = nearest_fit(replace(config, precision=order["precision"], device=order["device"]))
    row: Row = {"task": config.task, "algo": config.algo, "num_envs": config.num_envs, "device": order["device"]}
    row |= {"precision": config.precision, "adversary": case.algo == "cpo" and config.adversary.coef > 0}
    found = bench(config, order["iterations"], lambda text: None)
    row |= {"ms_iteration": found.iteration, "training": found.rate(), "physics_in_training": found.physics_rate}
    row |= {f"ms_{part}": found.parts[part] for part in ("collect", "targets", "update")}
    row |= {"rollout": found.rate(row["ms_collect"])}
    row |= {"gib": None if found.memory is None else found.memory / 2**30}
    if order["kernels"]:
        print(list_kernels(config, order["kernels"]), file=sys.stderr)
    return row


def nearest_fit(config: TrainConfig) -> TrainConfig:
    """With the nearest number of environments that trains, the smaller of two as near."""
    errors: list[UserError] = []
    for away in range(min(config.num_envs, FARTHEST)):
        for size in (config.num_envs - away, config.num_envs + away):
            try:
                resolve(replace(config, num_envs=size))
            except UserError as error:
                errors.append(error)
            else:
                return replace(config, num_envs=size)
    raise errors[0]  # which says what is wrong with the number that was asked for, or with something else


def table(rows: Sequence[Row]) -> str:
    """A line per case, its runs side by side."""
    headings = (
        *("case", "environments", "physics, M steps/s", "rollout", "training", "training / physics"),
        *("collect / targets / update, ms", "GiB"),
    )
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["case"], f"{row['num_envs']:,}"), []).append(row)

    def cells(row: Row) -> list[str]:
        rates = [ratio(row, name, 1e6, ".2f") for name in RATES]
        share = ratio(row, "training", row.get("physics_in_training"), ".0%")
        parts = " / ".join(ratio(row, f"ms_{part}", 1, ".1f") for part in ("collect", "targets", "update"))
        return [*rates, share, parts, ratio(row, "gib", 1, ".1f")]

    lines = ([*key, *map(", ".join, zip(*map(cells, runs), strict=True))] for key, runs in groups.items())
    return markdown(headings, lines)


def ratio(row: Row, name: str, by: float | None, how: str) -> str:
    """A figure in other units; a dash where it was not measured."""
    value = row.get(name)
    return "-" if value is None or by is None else f"{value / by:{how}}"


def ratios(rows: Sequence[Row]) -> list[str]:
    """One case over another, a line each: of the medians, and run by run."""
    lines = []
    for name, (figure, above, below) in RATIOS.items():
        one, other = ({row["run"]: row[figure] for row in rows if row["case"] == case} for case in (above, below))
        if one and other:
            runs = ", ".join(f"{one[run] / other[run]:.3f}" for run in one if run in other)
            whole = statistics.median(one.values()) / statistics.median(other.values())
            lines.append(f"* {name}: {whole:.3f} ({runs})")
    return lines


def report(rows: Sequence[Row]) -> None:
    print("", table(rows), "", *ratios(rows), sep="\n", flush=True)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("tasks", nargs="*", help="instead of the claims")
    every = list(CLAIMS)
    parser.add_argument("--only", nargs="+", choices=every, default=every, metavar="CASE", help=", ".join(every))
    parser.add_argument("--algo", default="cpo", help="of the tasks")
    parser.add_argument("--adversary", choices=("on", "off"), help="of the tasks; the preset's unless given")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[24576])
    parser.add_argument("--growth", action="store_const", dest="num_envs", const=GROWTH, help=f"at {GROWTH}")
    parser.add_argument("--precision", choices=("tf32", "fp32", "bf16"), default=TrainConfig.precision)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--runs", type=int, help="of each case; 2 of the claims, 1 of tasks")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--kernels", type=int, default=0, metavar="N", help="list so many of each part")
    parser.add_argument("--json", type=Path, help="append a line per measurement to this file")
    parser.add_argument("--table", type=Path, help="measure nothing; print what is in this file")
    args = parser.parse_args()
    if args.table:
        report(read_lines(args.table))
        return
    choose_device(args.device)
    given = {f"{task}-{args.algo}": Case(task, args.algo, args.adversary) for task in args.tasks}
    cases = given or {name: CLAIMS[name] for name in args.only}
    rows: list[Row] = []
    failed: list[str] = []
    fixed = {name: getattr(args, name) for name in ("precision", "device", "iterations", "kernels")}
    for run in range(args.runs or (1 if given else 2)):
        for num_envs in args.num_envs:
            for name, case in cases.items():
                found = in_a_process(__file__, fixed | {"case": asdict(case), "num_envs": num_envs})
                if found is None:  # said why on standard error; the others still count
                    failed.append(f"{name} with {num_envs} environments")
                    continue
                rows.append({"case": name, "run": run} | found)
                print(json.dumps(rows[-1]), flush=True)
                append(args.json, rows[-1:])
    report(rows)
    if failed:
        sys.exit(f"error: failed, as said above: {', '.join(failed)}")


if __name__ == "__main__":
    command(lambda: answer(measure) or main())

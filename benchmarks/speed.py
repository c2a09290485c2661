"""How fast is training, and how much of that is physics? Rates, parts of an iteration and memory, on one GPU.

    python benchmarks/speed.py --json results/speed/h200.jsonl                  # all claims; ten minutes on an H200
    python benchmarks/speed.py --only AllegroHand-pbt AllegroHand-ppo-alone     # a population beside its members
    python benchmarks/speed.py AllegroKukaThrow FrankaCubePush --random-steps 1000                    # other tasks
    python benchmarks/speed.py AllegroHand --growth --json results/growth/AllegroHand.jsonl           # other sizes
    python benchmarks/speed.py Humanoid --device cpu --num-envs 12 24 --iterations 2 --seconds 0.5    # a try
    python benchmarks/speed.py AllegroHand --kernels 20                         # where its time goes
    python benchmarks/speed.py --table results/speed/h200.jsonl                 # what was measured

Each measurement is a process of its own, so that memory is that of one, and all cases are measured once before any is
measured again. Rates are control steps per second over all environments. *Physics at rest* is the engine's substeps
from start states with constant controls, captured as a CUDA graph; *as in training* those of a rollout, from its states
with its controls: what moves and touches takes longer. *Rollout* adds task, policy, resets, scores and storage.
*Training* is whole iterations of the task's preset, medians of `--iterations`, with how they split, and the update
beside its roofline (`roofline.py`; none for a population). `--random-steps` control steps of random actions give the
rate of physics and task (`random`), the share of steps that lost contacts (`overflow`), and how many simulations
went wrong (`quarantined`). `--kernels` lists the longest kernels of collecting, targets and update, each by itself, on
standard error: milliseconds in all, how often, and the name. Sums exceed a part's time where kernels run side by side,
and fall short of it where the profiler misses those inside conditional graph nodes, as in the loops of MuJoCo Warp's
solver: of collecting, trust only those outside the solver. A number of environments that does not split into the
preset's equal minibatches is replaced by the nearest that does. `python docs/draw_growth.py` draws growth.
"""

import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from command import Row, answer, append, command, in_a_process, markdown, options, read_lines
from roofline import update_roofline
from torch.profiler import ProfilerActivity, profile

from echelon import tasks
from echelon.bench.clock import memory
from echelon.bench.physics import physics_of
from echelon.config import TrainConfig
from echelon.config.checks import require_device
from echelon.device.capture import Captured
from echelon.errors import UserError
from echelon.tasks import preset
from echelon.training.loop import set_up_torch
from echelon.training.resolve import resolve
from echelon.training.trainer import Trainer

STEPS = 8
"""Control steps in a graph of physics or of random actions."""
RATES = ("physics", "physics_in_training", "random", "rollout", "training")
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
    "CPO's iteration over SAPG's, without adversarial reward": (
        *("ms_iteration", "AllegroHand-cpo-no-adversary", "AllegroHand-sapg"),
    ),
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


def make_env(config: TrainConfig, device: torch.device) -> Any:
    """The environments of a run, after torch has been set up for it."""
    set_up_torch(config)
    env = tasks.make(config.task, config.env, config.num_envs, device, config.seed, spread_clocks=True)
    env.reset()
    return env


def wait(device: torch.device) -> None:
    """Until the device has done what it was asked to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rate(run: Callable[[], object], steps: int, seconds: float, device: torch.device) -> float:
    """Environment steps per second of a call that makes `steps`; called twice before it is timed."""
    for _ in range(2):
        run()
    wait(device)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        run()
        wait(device)
        count += steps
    return count / (time.perf_counter() - began)


def physics_at_rest(env: Any, seconds: float) -> float:
    """Control steps per second of captured substeps, with the controls as they are."""

    def physics() -> None:
        for _ in range(STEPS):
            env.engine.step(env.substeps)

    return rate(Captured(physics, env.device, around=env.capturing), STEPS * env.num_envs, seconds, env.device)


def random_steps(env: Any, count: int) -> Row:
    """So many control steps of random actions: their rate, and what went wrong in them."""
    device, engine = env.device, getattr(env, "engine", None)
    action, totals = torch.zeros(env.num_envs, env.action_dim, device=device), torch.zeros(2, device=device)
    none = torch.zeros(1, device=device)
    limited = getattr(engine, "limited", none)  # not counted on a CPU

    def run() -> None:
        for _ in range(STEPS):
            log = env.step(action.uniform_(-1, 1, generator=env.generator)).log
            totals.add_(torch.stack([log.get(name, none).sum() for name in ("overflow", "quarantined")]))

    captured = Captured(run, device, (env.generator,), env.capturing)
    for _ in range(2):
        captured()
    wait(device)
    totals.zero_()
    limited.zero_()
    began, replays = time.perf_counter(), -(-count // STEPS)
    for _ in range(replays):
        captured()
    wait(device)
    steps, seconds = replays * STEPS * env.num_envs, time.perf_counter() - began
    overflow, quarantined = totals.tolist()
    found: Row = {"random": steps / seconds, "overflow": overflow / steps, "quarantined": quarantined}
    found["at_solver_limit"] = limited.sum().item() / steps
    if engine is not None:
        found["finite"] = bool(torch.isfinite(engine.qpos).all() and torch.isfinite(engine.qvel).all())
    return found


def list_kernels(run: Callable[[], object], device: torch.device, top: int) -> str:
    """Those of a call, the longest first, after a line with their sum."""
    on_cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_cuda else ProfilerActivity.CPU]) as found:
        run()
        wait(device)
    spent: dict[str, list[float]] = defaultdict(list)
    for event in found.events() or []:
        if event.device_type.name == device.type.upper():
            spent[event.name].append((event.device_time_total if on_cuda else event.self_cpu_time_total) / 1000)
    rows = sorted(((sum(times), len(times), name) for name, times in spent.items()), reverse=True)
    whole = f"{sum(row[0] for row in rows):.1f} ms in {sum(row[1] for row in rows)} kernels"
    return "\n".join([whole, *(f"{ms:9.3f} {count:6d}  {name[:160]}" for ms, count, name in rows[:top])])


def iterations(trainer: Any, count: int) -> Row:
    """Medians over whole iterations, timed on the host; parts on the device."""
    seconds: list[float] = []
    parts: dict[str, list[float]] = {}
    for _ in range(count):
        began = time.perf_counter()
        trainer.iterate()
        seconds.append(time.perf_counter() - began)
        for name, value in trainer.timers.metrics().items():
            parts.setdefault(name.replace("time/", "ms_"), []).append(1000 * value)
    return {"ms_iteration": 1000 * statistics.median(seconds)} | {
        name: statistics.median(values) for name, values in parts.items()
    }


def training(env: Any, config: TrainConfig, order: Row, gib: Callable[[], float | None]) -> Row:
    """Whole iterations, memory, parts beside the roofline, and the physics of the last rollout alone."""
    trainer, steps = Trainer(env, config), config.steps_per_iteration
    for _ in range(3):  # as it is, recorded, replayed for the first time
        trainer.iterate()
    found = iterations(trainer, order["iterations"]) | {"gib": gib()}
    found |= {"training": 1000 * steps / found["ms_iteration"], "rollout": 1000 * steps / found["ms_collect"]}
    if order["kernels"]:
        wait(env.device)
        for part, run in (("collect", trainer._collect), ("targets", trainer._prepare), ("update", trainer._learn)):
            print(f"{config.task} {part}: {list_kernels(run, env.device, order['kernels'])}", file=sys.stderr)
    if config.algo != "pbt":  # the roofline counts one network that all policies share; members have one each
        found |= update_roofline(config, env.obs_spec, env.action_dim)
        found["update_over_roofline"] = found["ms_update"] / found["roofline_ms"]
    if hasattr(env, "engine"):
        repeat = Captured(physics_of(env, trainer.collector.rollout.action.clone()), env.device, around=env.capturing)
        found["physics_in_training"] = rate(repeat, steps, order["seconds"], env.device)
    return found


def measure(order: Row) -> Row:
    """All figures of a case, in a process of its own."""
    case, device = Case(**order["case"]), torch.device(order["device"])
    config = settings(case.task, case.algo, order["num_envs"] // case.share, case.adversary)
    config = nearest_fit(replace(config, precision=order["precision"]))
    held, began = memory(device), time.perf_counter()

    def gib() -> float | None:
        now = memory(device)
        return None if now is None or held is None else (now - held) / 2**30

    env = make_env(config, device)
    wait(device)
    found: Row = {"task": config.task, "algo": config.algo, "num_envs": config.num_envs, "device": order["device"]}
    found |= {"precision": config.precision, "adversary": case.algo == "cpo" and config.adversary.coef > 0}
    found |= {name: getattr(env.config, name, None) for name in ("contacts", "constraints")}
    found |= {"ready_s": time.perf_counter() - began, "physics_gib": gib()}
    if order["iterations"]:
        found |= training(env, config, order, gib)
    env.reset()
    if hasattr(env, "engine"):
        found["physics"] = physics_at_rest(env, order["seconds"])
    return found | (random_steps(env, order["random_steps"]) if order["random_steps"] else {})


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
        *("case", "environments", "physics at rest, M steps/s", "physics as in training", "random actions", "rollout"),
        *("training", "training / physics at rest", "/ as in training", "collect / targets / update, ms"),
        *("roofline, ms", "update / roofline", "GiB: physics, training"),
    )
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["case"], f"{row['num_envs']:,}"), []).append(row)

    def cells(row: Row) -> list[str]:
        rates = [ratio(row, name, 1e6, ".2f") for name in RATES]
        shares = [ratio(row, "training", row.get(name), ".0%") for name in ("physics", "physics_in_training")]
        parts = " / ".join(ratio(row, f"ms_{part}", 1, ".1f") for part in ("collect", "targets", "update"))
        bounds = [ratio(row, "roofline_ms", 1, ".1f"), ratio(row, "update_over_roofline", 1, ".2f")]
        sizes = "; ".join(ratio(row, name, 1, ".1f") for name in ("physics_gib", "gib"))
        return [*rates, *shares, parts, *bounds, sizes]

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
    parser.add_argument("--iterations", type=int, default=20, help="0: physics and random actions alone")
    parser.add_argument("--seconds", type=float, default=1.5, help="of physics alone")
    parser.add_argument("--random-steps", type=int, default=0)
    parser.add_argument("--kernels", type=int, default=0, metavar="N", help="list so many of each part")
    parser.add_argument("--json", type=Path, help="append a line per measurement to this file")
    parser.add_argument("--table", type=Path, help="measure nothing; print what is in this file")
    args = parser.parse_args()
    if args.table:
        report(read_lines(args.table))
        return
    require_device(args.device)
    given = {f"{task}-{args.algo}": Case(task, args.algo, args.adversary) for task in args.tasks}
    cases = given or {name: CLAIMS[name] for name in args.only}
    rows: list[Row] = []
    failed: list[str] = []
    named = ("precision", "device", "iterations", "seconds", "random_steps", "kernels")
    fixed = {name: getattr(args, name) for name in named}
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

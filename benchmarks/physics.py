"""A laboratory for the physics of MuJoCo Warp: what a setting of the engine costs, and what it changes.

    python benchmarks/physics.py --tasks AllegroHand ShadowHand --settings stock fused --json physics.jsonl
    python benchmarks/physics.py --tasks AllegroHand --settings stock fused=newton,iterations=12 --kernels 30
    python benchmarks/physics.py --device cpu --num-envs 4 --tasks Hopper        # tries the logic, not the speed

CUDA kernels compile at first use, about a minute per task; Warp caches them. With several tasks they compile side by
side first, in `--compile-workers` processes. `--budget SECONDS` bounds the run: what does not fit is left out and named
in `left_out`. Each task runs in a process of its own, so a fault in a kernel ends only that one.

A setting is a name (`stock`, `fused`, `converged`) or options, `key=value,key=value`:

| option | value |
|---|---|
| `iterations`, `ls_iterations`, `ccd_iterations` | limits of the Newton solver, its line search, convex collision |
| `tolerance`, `ls_tolerance`, `impratio` | of MuJoCo's options; MuJoCo Warp raises `tolerance` to at least 1e-6 |
| `cone`, `jacobian`, `integrator` | `pyramidal`, `elliptic`; `dense`, `sparse`; `euler`, `implicitfast` |
| `substeps` | physics steps per control step, whose length stays |
| `warp.NAME` | a field of MuJoCo Warp's own options: `warp.run_qacc_smooth=0`, `warp.tolerance=1e-8` |
| `fused` | parts that Echelon's kernels compute, `smooth+rows+newton`, `all` or `none` (`stock`) |
| `contacts`, `constraints` | room per world |

Random actions, each held for five control steps, drive one environment of the task until contacts are as in a rollout.
Its state and the controls of the next 64 control steps are kept; every setting starts there with its own engine. Each
line of JSON, one per task and setting, holds its `options`, `not_fused` (parts that are not supported, and why) and:

* `ms`: milliseconds of physics per control step, the median over rounds in which the settings take turns; `ratio`: the
  first setting's time divided by this one's, the median of the rounds' ratios. On CUDA eight control steps are a graph,
  timed by events; on a CPU they are timed by the clock.
* `agree`: how far positions after 1, 8 and 64 control steps are from those of the first setting (`first`), from another
  run of the same setting (`again`: atomic sums make runs differ) and from the solver run to convergence (`converged`).
  A world's distance is the root mean square over degrees of freedom of the difference divided by what each typically
  moves by, at least 1 mm or 0.01 rad: `median` and `p95` over worlds; `mm_p95` is the displacement of free bodies.
  Worlds whose episode ended meanwhile do not count.
* `iterations`: mean, p95, max and histogram over the substeps of eight control steps; `slowest`: the mean over substeps
  of the slowest world; `at_limit`: the share of substeps that took all iterations. `overflow`, `limited`, `bad`: worlds
  that the engine counted. `rows`, `contacts` of a world beside their room, `depth_mm` of its deepest contact and
  `beyond_rad`, how far its hinges are beyond their stops.
* `kernels` (CUDA, with `--kernels N`): milliseconds and launches per control step by source file, and the N largest
  kernels with registers and occupancy, from two eager control steps: the profiler cannot see into a graph's loops.
"""

import copy
import dataclasses
import inspect
import json
import os
import re
import statistics
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp
from command import Row, answer, append, command, in_a_process, markdown, options
from torch import Tensor

from echelon import tasks
from echelon.config.checks import choose_device
from echelon.device.capture import Captured
from echelon.errors import UserError
from echelon.sim import probe
from echelon.sim.warp import WarpEngine
from echelon.tasks import preset
from echelon.tasks.settings import MujocoTaskConfig

ARGUMENTS = set(inspect.signature(WarpEngine).parameters) - {"model", "num_sims", "device"}
STOCK = "fused=none" if "fused" in ARGUMENTS else ""
NAMES = {
    "stock": STOCK,
    "fused": "fused=all",
    "converged": f"{STOCK},iterations=100,ls_iterations=50,ls_tolerance=1e-4,warp.tolerance=1e-10",
}
CHOICES = {
    "cone": {"pyramidal": mujoco.mjtCone.mjCONE_PYRAMIDAL, "elliptic": mujoco.mjtCone.mjCONE_ELLIPTIC},
    "jacobian": {"dense": mujoco.mjtJacobian.mjJAC_DENSE, "sparse": mujoco.mjtJacobian.mjJAC_SPARSE},
    "integrator": {"euler": mujoco.mjtIntegrator.mjINT_EULER, "implicitfast": mujoco.mjtIntegrator.mjINT_IMPLICITFAST},
}
NUMBERS = ("iterations", "ls_iterations", "ccd_iterations", "tolerance", "ls_tolerance", "impratio", "substeps")
INPUTS = ("ctrl", "mocap_pos", "mocap_quat", "xfrc_applied")
HOLD = 5
"""Control steps for which a random action is held, so that it leads somewhere."""
TIMED = 8
"""Control steps of a timed graph: a rollout of the hands."""
AFTER = (1, 8, 64)
"""Control steps after which positions are compared."""
COMPARED = 4096
"""Worlds whose positions are compared, at most."""


def parse(setting: str) -> Row:
    """The options of a setting, with numbers as numbers."""
    found: Row = {}
    for part in filter(None, NAMES.get(setting, setting).split(",")):
        name, _, value = part.partition("=")
        number = re.fullmatch(r"\d+(\.\d*)?(e-?\d+)?", value)
        other = value and (name in ARGUMENTS or name.startswith("warp."))
        if not (value in CHOICES.get(name, ()) or (number and name in NUMBERS) or other):
            known = ", ".join((*CHOICES, *NUMBERS, *sorted(ARGUMENTS), "warp.NAME"))
            raise UserError(f"{part!r} is no setting; there are {', '.join(NAMES)}, and the options {known}")
        found[name] = value if number is None else int(value) if value.isdigit() else float(value)
    return found


def change(model: mujoco.MjModel, substeps: int, wanted: Row) -> int:
    """Set MuJoCo's options; returns the substeps of a control step."""
    for name, value in wanted.items():
        if name in CHOICES:
            setattr(model.opt, name, CHOICES[name][value])
        elif name in NUMBERS and name != "substeps":
            setattr(model.opt, name, value)
    model.opt.timestep *= substeps / wanted.get("substeps", substeps)
    return wanted.get("substeps", substeps)


def arguments(wanted: Row) -> Row:
    """The arguments of the engine; without `fused` it uses all kernels that Echelon has."""
    found = {name: wanted[name] for name in ARGUMENTS & wanted.keys() if wanted[name] != "all"}
    if "fused" in found:
        found["fused"] = () if found["fused"] == "none" else tuple(found["fused"].split("+"))
    return found


def on_warp(task: str) -> Any:
    """The task's class with MuJoCo Warp as its engine on every device, and the room it was given."""
    if not isinstance(preset(task).env, MujocoTaskConfig):
        raise UserError(f"{task} is not simulated by MuJoCo")
    original: Any = tasks.info(task).task

    class OnWarp(original):
        def _make_engine(self) -> WarpEngine:
            model, config = self.model(), self.config
            if None in (config.contacts, config.constraints):
                found = probe(model)
                contacts, constraints = config.contacts or found[0], config.constraints or found[1]
                config = self.config = dataclasses.replace(config, contacts=contacts, constraints=constraints)
            self.pristine = copy.deepcopy(model)
            stock = arguments(parse("stock"))
            return WarpEngine(model, self.num_envs, self.device, config.contacts, config.constraints, **stock)

    return OnWarp


@dataclasses.dataclass
class Start:
    """A state of all worlds, and what they were driven by afterwards."""

    engine: Any = None
    controls: list[dict[str, Tensor]] = dataclasses.field(default_factory=list)
    whole: list[np.ndarray] = dataclasses.field(default_factory=list)
    """For each control step, the compared worlds whose episode had not ended by its end."""


def record(env: Any, short: bool) -> Start:
    """Drive the environment into a rollout's states, then keep the state and the controls that follow."""
    action = torch.zeros(env.num_envs, env.action_dim, device=env.device)
    whole = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    warm, long = (1, 1) if short else (40, AFTER[-1]) if env.device.type == "cuda" else (10, TIMED)

    def step() -> None:
        done = env.step(action)
        whole.logical_and_(~(done.terminated | done.truncated | env.engine.bad))

    advance = Captured(step, env.device, (env.generator,), env.capturing)
    start = Start()
    env.reset()
    for number in range(-warm, long):
        if number == 0:
            whole.fill_(True)
            start.engine = env.engine.state_dict()
        if number % HOLD == 0:
            action.uniform_(-1, 1, generator=env.generator)
        advance()
        if number >= 0:
            start.controls.append({name: getattr(env.engine, name).clone() for name in INPUTS})
            start.whole.append(whole[:COMPARED].cpu().numpy().copy())
    for name in INPUTS:  # a task without markers or pushes pays for neither
        if not any(kept[name].any() for kept in start.controls):
            for kept in start.controls:
                del kept[name]
    return start


class Trial:
    """One setting: an engine of its own, and what has been measured."""

    def __init__(self, env: Any, setting: str, start: Start) -> None:
        wanted, model = parse(setting), copy.deepcopy(env.pristine)
        self.setting, self.start, self.row = setting, start, Row()
        self.substeps = change(model, env.substeps, wanted)
        room = {"contacts": env.config.contacts, "constraints": env.config.constraints}
        self.engine = WarpEngine(model, env.num_envs, env.device, **(room | arguments(wanted)))
        for name, value in wanted.items():
            if name.startswith("warp."):
                self._set(name.removeprefix("warp."), value)
        if env.engine._has_readers:  # the task reads poses, so physics includes their update
            self.engine.read("xpos")
        self.engine.load_state_dict(start.engine)
        timed = start.controls[:TIMED]
        self.graph = Captured(lambda: [self.drive(kept) for kept in timed], env.device, around=self.engine.capturing)
        self.slot = {name: x.clone() for name, x in start.controls[0].items()}
        self.one = Captured(lambda: self.drive(self.slot), env.device, around=self.engine.capturing)
        self.times: list[float] = []

    def _set(self, name: str, value: Any) -> None:
        """Set a field of MuJoCo Warp's options, a number or an array with a value per world."""
        options = self.engine._model.opt
        if not hasattr(options, name):
            raise UserError(f"MuJoCo Warp's options have no {name}")
        if hasattr(getattr(options, name), "fill_"):
            getattr(options, name).fill_(value)
        else:
            setattr(options, name, type(getattr(options, name))(value))

    def restore(self) -> None:
        """Return to the kept state; constants of the model are as they were."""
        for name, x in self.engine._state.items():
            x.copy_(self.start.engine["state"][name])

    def drive(self, kept: dict[str, Tensor], substeps: int | None = None) -> None:
        """Take one control step with kept controls, or only a part of it."""
        for name, x in kept.items():
            getattr(self.engine, name).copy_(x)
        self.engine.step(self.substeps if substeps is None else substeps)

    def time(self) -> None:
        """Add the milliseconds of a control step, measured once."""
        self.restore()
        if self.engine.device.type == "cuda":
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            self.graph()
            ended.record()
            ended.synchronize()
            milliseconds = began.elapsed_time(ended)
        else:
            at = time.perf_counter()
            self.graph()
            milliseconds = 1e3 * (time.perf_counter() - at)
        self.times.append(milliseconds / TIMED)

    def positions(self) -> dict[int, np.ndarray]:
        """`[worlds, nq]` after control steps from the kept state with the kept controls."""
        found = {}
        self.restore()
        for number, kept in enumerate(self.start.controls, start=1):
            for name, x in kept.items():
                self.slot[name].copy_(x)
            self.one()
            if number in AFTER:
                found[number] = self.engine.qpos[:COMPARED].double().cpu().numpy()
        return found

    def health(self) -> Row:
        """Read the solver, its buffers and contacts in every substep of eight control steps."""
        engine, data, worlds = self.engine, self.engine._data, self.engine.num_sims
        model, device = engine.model, engine.device
        hinges = np.flatnonzero(model.jnt_limited & (model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE))
        low, high = (torch.tensor(x, device=device) for x in model.jnt_range[hinges].T)
        angles = torch.tensor(model.jnt_qposadr[hinges], device=device).long()
        seen: defaultdict[str, list[Tensor]] = defaultdict(list)
        self.restore()
        engine.overflow.zero_()
        engine.limited.zero_()
        for kept in self.start.controls[:TIMED]:
            for _ in range(self.substeps):
                self.drive(kept, 1)
                seen["bad"].append(engine.bad.clone())
                seen["iterations"].append(wp.to_torch(data.solver_niter).clone())
                seen["rows"].append(wp.to_torch(data.nefc).clone())
            count = min(int(wp.to_torch(data.nacon)[0]), data.naconmax)
            world, depth = wp.to_torch(data.contact.worldid)[:count].long(), -wp.to_torch(data.contact.dist)[:count]
            seen["contacts"].append(torch.bincount(world, minlength=worlds))
            seen["depth_mm"].append(torch.zeros(worlds, device=device).scatter_reduce_(0, world, 1e3 * depth, "amax"))
            beyond = torch.maximum(engine.qpos[:, angles] - high, low - engine.qpos[:, angles])
            seen["beyond_rad"].append(torch.cat((beyond, torch.zeros(worlds, 1, device=device)), dim=1).amax(1))
        arrays = {name: torch.stack(values).cpu().numpy() for name, values in seen.items()}
        found: Row = {
            name: {"mean": x.mean(), "p95": np.percentile(x, 95), "max": x.max()}
            for name, x in arrays.items()
            if name != "bad"
        }
        iterations = arrays["iterations"]
        found["iterations"] |= {
            "slowest": iterations.max(axis=1).mean(),
            "at_limit": (iterations >= model.opt.iterations).mean(),
            "histogram": np.bincount(iterations.ravel()).tolist(),
        }
        found["rows"]["room"], found["contacts"]["room"] = data.njmax, data.naconmax // worlds
        counters = {"overflow": engine.overflow, "limited": engine.limited}
        return found | {name: int((x > 0).sum()) for name, x in counters.items()} | {"bad": arrays["bad"].any(0).sum()}

    def kernels(self, largest: int) -> Row:
        """Time by kernel in two eager control steps."""
        from torch.profiler import ProfilerActivity, profile

        self.restore()
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for kept in self.start.controls[:2]:
                self.drive(kept)
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            profiled.export_chrome_trace(f"{folder}/trace.json")
            events = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
        on_gpu = ("kernel", "gpu_memcpy", "gpu_memset")
        return by_kernel([event for event in events if event.get("cat") in on_gpu], 2, largest)


def by_kernel(events: list[Row], steps: int, largest: int) -> Row:
    """Sum the events of some control steps by kernel and by source file, the longest first."""
    kernels: dict[str, Row] = {}
    by_file: dict[str, Row] = {}
    files = kernel_files()
    for event in events:
        name = re.sub(r"(_[0-9a-f]{8})?_cuda_kernel_forward$", "", event["name"]).removesuffix("__locals__kernel")
        functions, about = name.split("__locals__"), event.get("args", {})
        known = next((files[function] for function in reversed(functions) if function in files), "torch and copies")
        file = name if name.startswith("echelon_") else known
        sums = {"file": file, "ms": 0.0, "launches": 0.0}
        details = {"registers": about.get("registers per thread"), "occupancy": about.get("est. achieved occupancy %")}
        for row in (kernels.setdefault(name, {"kernel": name[:100]} | sums | details), by_file.setdefault(file, sums)):
            row["ms"] += event["dur"] / 1e3 / steps
            row["launches"] += 1 / steps
    found: Row = {name: sum(row[name] for row in by_file.values()) for name in ("ms", "launches")}
    ranked = [sorted(rows.values(), key=lambda row: -row["ms"]) for rows in (by_file, kernels)]
    return found | {"by_file": ranked[0], "largest": ranked[1][:largest]}


def kernel_files() -> dict[str, str]:
    """The file that defines each kernel, by function: of MuJoCo Warp and of `echelon.sim`."""
    import mujoco_warp

    import echelon.sim

    paths = [*Path(mujoco_warp.__file__).parent.glob("_src/*.py"), *Path(echelon.sim.__file__).parent.glob("*.py")]
    return {
        name: path.stem
        for path in paths
        if not path.stem.endswith("_test")
        for name in re.findall(r"^\s*def (\w+)", path.read_text(), re.MULTILINE)
    }


def differences(model: mujoco.MjModel, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """`[worlds, nv]`: from one configuration to the other, angles where there are quaternions."""
    found = np.zeros((len(before), model.nv))
    for row, one, other in zip(found, before, after, strict=True):
        mujoco.mj_differentiatePos(model, row, 1.0, one, other)
    return found


def free_dofs(model: mujoco.MjModel) -> np.ndarray:
    """`[bodies, 6]`: degrees of freedom of free bodies, three lengths and three angles each."""
    return model.jnt_dofadr[model.jnt_type == mujoco.mjtJoint.mjJNT_FREE][:, None] + np.arange(6)


def movements(model: mujoco.MjModel, moved: np.ndarray) -> np.ndarray:
    """`[nv]`: what each degree of freedom typically moves by, at least 1 mm or 0.01 rad."""
    least = np.full(model.nv, 1e-2)
    least[model.jnt_dofadr[model.jnt_type == mujoco.mjtJoint.mjJNT_SLIDE]] = 1e-3
    least[free_dofs(model)[:, :3].ravel()] = 1e-3
    return np.maximum(np.sqrt(np.mean(moved**2, axis=0)), least)


def distance(model: mujoco.MjModel, start: np.ndarray, one: np.ndarray, other: np.ndarray) -> Row:
    """How far two results from one start differ; worlds with numbers that are not finite count as bad elsewhere."""
    fine = np.isfinite(one).all(1) & np.isfinite(other).all(1)
    if not fine.any():
        return {"worlds": 0}
    off = differences(model, one[fine], other[fine])
    error = np.sqrt(np.mean((off / movements(model, differences(model, start[fine], one[fine]))) ** 2, axis=1))
    found: Row = {"median": np.median(error), "p95": np.percentile(error, 95), "worlds": int(fine.sum())}
    if len(free := free_dofs(model)):
        shifts = np.linalg.norm(off[:, free[:, :3]], axis=2).max(axis=1)
        found["mm_p95"] = 1e3 * np.percentile(shifts, 95)
    return found


def agree(trials: list[Trial], converged: Trial) -> None:
    """Compare every setting's positions with the first's, with its own of another run, and with the converged ones."""
    ends = [trial.positions() for trial in trials]
    exact = converged.positions()
    start = converged.start.engine["state"]["qpos"][:COMPARED].double().cpu().numpy()
    for trial, own in zip(trials, ends, strict=True):
        others = {"first": ends[0], "again": trial.positions(), "converged": exact}
        if trial is trials[0]:
            del others["first"]
        trial.row["agree"] = {
            name: {
                str(steps): distance(trial.engine.model, start[fair], other[steps][fair], own[steps][fair])
                for steps, fair in ((steps, trial.start.whole[steps - 1]) for steps in own)
                if fair.any()
            }
            for name, other in others.items()
        }


def take_turns(trials: list[Trial], seconds: float) -> None:
    """Time all settings in rounds: at least five, then until the time is over; on a CPU two."""
    for _ in range(2):  # compiled, then recorded as a graph
        for trial in trials:
            trial.time()
            trial.times.clear()
    until = time.perf_counter() + seconds
    least = 5 if trials[0].engine.device.type == "cuda" else 2
    while len(trials[0].times) < least or (time.perf_counter() < until and len(trials[0].times) < 200):
        for trial in trials:
            trial.time()
    for trial in trials:
        pairs = zip(trials[0].times, trial.times, strict=True)
        trial.row |= {
            "ms": statistics.median(trial.times),
            "ratio": statistics.median(first / own for first, own in pairs),
            "spread": (max(trial.times) - min(trial.times)) / statistics.median(trial.times),
            "rounds": len(trial.times),
        }


@torch.inference_mode()
def study(order: Row) -> list[Row]:
    """Measure all settings of one task, in a process of its own; what failed or did not fit in time is named."""
    ends, task, device = time.perf_counter() + order["budget"], order["task"], torch.device(order["device"])
    env = on_warp(task)(preset(task).env, order["num_envs"], device, 0, spread_clocks=True)
    start = record(env, order["compile_only"])
    shared: Row = {"task": task, "device": device.type, "num_envs": env.num_envs, "nv": env.engine.model.nv}
    if device.type == "cuda":
        shared["device"] = torch.cuda.get_device_name(device)
    rows: list[Row] = []
    trials: list[Trial] = []
    left_out: list[str] = []

    def attempt(name: str, part: Callable[[], Any]) -> None:
        if time.perf_counter() > ends:
            left_out.append(f"{name}: no time")
            return
        try:
            part()
        except Exception as error:  # whatever a new kernel does wrong, what is known is worth keeping
            print(f"{task}, {name}:\n{traceback.format_exc()}", file=sys.stderr)
            left_out.append(f"{name}: {type(error).__name__}: {error}")

    for setting in order["settings"]:
        attempt(setting, lambda setting=setting: trials.append(Trial(env, setting, start)))
    if order["compile_only"]:
        return rows
    attempt("time", lambda: take_turns(trials, order["seconds"]))
    attempt("agree", lambda: agree(trials, Trial(env, "converged", start)))
    for trial in trials:
        attempt(f"health of {trial.setting}", lambda trial=trial: trial.row.update(trial.health()))
    for trial in trials if device.type == "cuda" and order["kernels"] else ():
        listed = f"kernels of {trial.setting}"
        attempt(listed, lambda trial=trial: trial.row.update(kernels=trial.kernels(order["kernels"])))
    for trial in trials:
        about = {"setting": trial.setting, "options": parse(trial.setting), "substeps": trial.substeps}
        about["not_fused"] = getattr(getattr(trial.engine, "substep", None), "reasons", {})
        rows.append(shared | about | trial.row | {"left_out": left_out})
    return rows


def report(rows: list[Row]) -> str:
    """The rows of a task as Markdown, then the kernels of each."""
    headings = ("setting", "ms a control step", "ratio", "apart after 8 steps: from first, again, from converged")
    headings += ("iterations: mean, slowest, max", "at limit", "overflow", "bad", "depth: 95 %, max")
    lines = []
    for row in rows:
        cells = [row["setting"], *(f"{row[name]:.3f}" if name in row else "–" for name in ("ms", "ratio"))]
        apart = [row.get("agree", {}).get(name, {}).get("8", {}) for name in ("first", "again", "converged")]
        cells.append(", ".join(f"{x['median']:.1e}" if "median" in x else "–" for x in apart))
        if "iterations" in row:
            found, depth = row["iterations"], row["depth_mm"]
            cells += [f"{found['mean']:.2f}, {found['slowest']:.1f}, {found['max']}", f"{found['at_limit']:.2%}"]
            cells += [row["overflow"], row["bad"], f"{depth['p95']:.2f}, {depth['max']:.1f} mm"]
        lines.append((*cells, *("–",) * (len(headings) - len(cells))))
    parts = [markdown(headings, lines), *(f"left out: {what}" for what in rows[0]["left_out"])]
    for row in rows:
        if "kernels" in row:
            parts.append(f"{row['setting']}: {row['kernels']['launches']:.0f} launches, {row['kernels']['ms']:.3f} ms")
            for group in ("by_file", "largest"):
                found = row["kernels"][group]
                parts.append(markdown(tuple(found[0]), [tuple(one.values()) for one in found]))
    return "\n\n".join(parts)


def compile_side_by_side(orders: list[Row], workers: int) -> None:
    """Fill Warp's cache of kernels by building every setting of every task with few worlds."""
    began = time.perf_counter()
    small = [order | {"compile_only": True, "num_envs": 64} for order in orders]
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda order: in_a_process(__file__, order), small))
    print(f"compiled in {time.perf_counter() - began:.0f} s", file=sys.stderr)


def main() -> None:
    if answer(study):
        return
    parser = options(__doc__)
    parser.add_argument("--tasks", nargs="+", default=["AllegroHand"])
    parser.add_argument("--settings", nargs="+", default=["stock"], help="the first is what others are compared with")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--num-envs", type=int, default=24576)
    parser.add_argument("--seconds", type=float, default=4.0, help="of timing a task, all settings in turns")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds after which what is left is left out")
    parser.add_argument("--kernels", type=int, default=0, help="list as many kernels of each setting, the largest")
    parser.add_argument("--compile-workers", type=int, default=os.cpu_count(), help="0: compile when first used")
    parser.add_argument("--json", type=Path, help="append a line per task and setting to this file")
    args = parser.parse_args()
    choose_device(args.device)
    ends = time.perf_counter() + args.budget
    for setting in args.settings:  # a mistake is named before anything is compiled
        parse(setting)
    for task in args.tasks:
        on_warp(task)
    shared = {"settings": args.settings, "device": args.device, "num_envs": args.num_envs, "compile_only": False}
    shared |= {"seconds": args.seconds, "kernels": args.kernels, "budget": args.budget}
    orders = [shared | {"task": task} for task in args.tasks]
    if len(orders) > 1 and args.device == "cuda" and args.compile_workers:
        compile_side_by_side(orders, args.compile_workers)
    for number, order in enumerate(orders):
        left = (ends - time.perf_counter()) / (len(orders) - number)
        if left < 5:
            print(f"{order['task']}: left out, no time", file=sys.stderr)
            continue
        rows = in_a_process(__file__, order | {"budget": left})
        if rows:
            print(f"{order['task']}, {order['num_envs']} environments\n\n{report(rows)}\n", flush=True)
            append(args.json, rows)
        else:
            print(f"{order['task']}: nothing was measured; the reason is above", file=sys.stderr)


if __name__ == "__main__":
    command(main)

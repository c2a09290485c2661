"""What a scene's physics settings cost, and what they give: rate against error for settings around the chosen ones.

    OMP_NUM_THREADS=1 python benchmarks/physics_trade.py AllegroHand Humanoid [--variants substeps=3 ...] [--json FILE]
    python benchmarks/physics_trade.py AllegroHand --device cuda --variants substeps=3 iterations=4 [--num-envs 24576]

On the CPU every variant starts from the same states of a rollout with random actions, takes the same controls for a few
control steps, and ends somewhere else than a fine reference does: the scene's own settings with a sixteenth of the
time step, a hundred iterations and tolerance 1e-12. *Error* is over all degrees of freedom the root mean square of the
distance in units of what each moves by in those steps, typically, and at least 1 mm or 0.01 rad. *Adrift* is how far
a free body ends from the reference's, the farthest of a scene's. *Depth* is how deep the deepest contact is at the
end. *At limit* is the share of control steps whose last solve took all its iterations. A change of the model, such as
another cone, is an error too: read it as the difference it makes. Rates are control steps of physics per second of
processor time in rounds in which the variants alternate: the median, and the median ratio to the chosen settings in the
same round. The last row is the reference with twice its time step: an error below that means nothing.

On CUDA the variants are those asked for, beside the chosen one, and only rates are measured: captured substeps, from
such states again and again. How to write a variant: `benchmarks/physics_variants.py`.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch
from command import append, command, markdown, options
from physics_variants import CHOSEN, free_dofs, vary, worth_trying
from speed import rate
from torch import Tensor

from echelon import tasks
from echelon.config.checks import require_device
from echelon.device.capture import Captured
from echelon.presets import preset
from echelon.sim.capacity import probe
from echelon.sim.cpu import CpuEngine

HORIZON = 4
"""Control steps over which an error grows."""
HOLD = 5
"""Control steps for which a random action is held, so that it leads somewhere."""
FINER = 16
EXACT = "iterations=100,line_search=100,tolerance=1e-12"
SMALLEST = {"length": 1e-3, "angle": 1e-2}
"""Movements by which an error is divided at least, in metres and radians."""


@dataclass
class Start:
    """States of all simulations, and what they were driven by afterwards."""

    state: Any
    qpos: np.ndarray
    controls: list[Tensor] = field(default_factory=list)
    pushes: list[Tensor] = field(default_factory=list)
    whole: np.ndarray = field(default_factory=lambda: np.ones(0, bool))
    """`[N]`: episodes that did not end meanwhile."""


@dataclass
class Ends:
    """Where `n` simulations ended."""

    qpos: np.ndarray
    depth: np.ndarray
    """Of the deepest contact, metres."""
    limited: float
    bad: np.ndarray


def draw_action(env: Any, generator: torch.Generator) -> Tensor:
    return 2 * torch.rand(env.num_envs, env.action_dim, generator=generator, device=env.device) - 1


def random_starts(env: Any, count: int) -> list[Start]:
    """States met under random actions, twenty control steps apart."""
    generator = torch.Generator(env.device).manual_seed(1)
    starts: list[Start] = []
    env.reset()
    action = draw_action(env, generator)
    for step in range(20 * (count + 1)):
        if step % HOLD == 0:
            action = draw_action(env, generator)
        if step % 20 == 0 and step:
            qpos = env.engine.qpos.numpy().copy()
            starts.append(Start(env.engine.state_dict(), qpos, whole=np.ones(env.num_envs, bool)))
        ended = env.step(action)
        if starts and len(starts[-1].controls) < HORIZON:
            starts[-1].controls.append(env.engine.ctrl.clone())
            starts[-1].pushes.append(env.engine.xfrc_applied.clone())
            starts[-1].whole &= ~(ended.terminated | ended.truncated).numpy()
    return starts


class Trial:
    """A variant on the CPU and what has been measured of it."""

    def __init__(self, env: Any, variant: str) -> None:
        model = env.model()
        self.variant = variant
        self.substeps = vary(model, env.substeps, variant)
        self.engine = CpuEngine(model, env.num_envs, threads=1)
        self.rates: list[float] = []
        self._iterations = self.engine.read("solver_niter")

    def run(self, starts: list[Start]) -> Ends:
        """From every start, with the controls that followed it there."""
        engine, spent, limited = self.engine, 0.0, []
        qpos, depth, bad = [], [], []
        for start in starts:
            engine.load_state_dict(start.state)
            went_bad = torch.zeros(engine.num_sims, dtype=torch.bool)
            for control, push in zip(start.controls, start.pushes, strict=True):
                engine.ctrl.copy_(control)
                engine.xfrc_applied.copy_(push)
                began = time.process_time()
                engine.step(self.substeps)
                spent += time.process_time() - began
                limited.append((self._iterations.amax(1) >= engine.model.opt.iterations).double().mean().item())
                went_bad |= engine.bad
            qpos.append(engine.qpos.numpy().copy())
            depth.append(depths(engine))
            bad.append(went_bad.numpy())
        self.rates.append(len(starts) * HORIZON * engine.num_sims / spent)
        return Ends(np.concatenate(qpos), np.concatenate(depth), statistics.mean(limited), np.concatenate(bad))


def depths(engine: CpuEngine) -> np.ndarray:
    """`[N]` metres: of each simulation's deepest contact."""
    data = mujoco.MjData(engine.model)
    found = []
    for number in range(engine.num_sims):
        engine._batch.get_data(number, data)
        found.append(abs(float(np.min(data.contact.dist[data.contact.exclude == 0], initial=0.0))))
    return np.array(found)


def differences(model: mujoco.MjModel, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """`[n, nv]`: from one configuration to the other, angles where there are quaternions."""
    found = np.zeros((len(before), model.nv))
    for row, one, other in zip(found, before, after, strict=True):
        mujoco.mj_differentiatePos(model, row, 1.0, one, other)
    return found


def movements(model: mujoco.MjModel, moved: np.ndarray) -> np.ndarray:
    """`[nv]`: what each degree of freedom typically moves by, and at least a little."""
    lengths = np.zeros(model.nv, bool)
    lengths[model.jnt_dofadr[model.jnt_type == mujoco.mjtJoint.mjJNT_SLIDE]] = True
    lengths[free_dofs(model).reshape(-1, 6)[:, :3].ravel()] = True
    least = np.where(lengths, SMALLEST["length"], SMALLEST["angle"])
    return np.maximum(np.sqrt(np.mean(moved**2, axis=0)), least)


def judge(model: mujoco.MjModel, starts: list[Start], fine: Ends, ends: Ends) -> dict[str, float]:
    """A variant's figures beside the reference."""
    fair = np.concatenate([start.whole for start in starts]) & ~fine.bad
    before = np.concatenate([start.qpos for start in starts])[fair]
    scale = movements(model, differences(model, before, fine.qpos[fair]))
    off = differences(model, fine.qpos[fair], ends.qpos[fair])
    error = np.sqrt(np.mean((off / scale) ** 2, axis=1))
    free = off[:, free_dofs(model)].reshape(len(off), -1, 6)[:, :, :3]
    adrift = 1e3 * np.linalg.norm(free, axis=2).max(axis=1, initial=0.0)
    found: dict[str, float] = {"states": len(off)}
    for name, values in (("error", error), ("adrift_mm", adrift), ("depth_mm", 1e3 * ends.depth[fair])):
        median, high, most = np.percentile(values, (50, 95, 100))
        found |= {f"{name}_median": median, f"{name}_95": high, f"{name}_most": most}
    return found | {"at_limit": ends.limited, "bad": int(ends.bad[fair].sum())}


def trade_on_cpu(task: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    env: Any = tasks.make(task, preset(task).env, args.num_envs or 64, torch.device("cpu"), 0, spread_clocks=True)
    starts = random_starts(env, args.starts)
    model, finest = env.engine.model, FINER * env.substeps
    names = [CHOSEN, *args.variants] if args.variants else worth_trying(model, env.substeps)
    trials = [Trial(env, name) for name in names]
    ends = [trial.run(starts) for trial in trials]
    for _ in range(args.rounds - 1):  # for their rates: they end where they did
        for trial in trials:
            trial.run(starts)
    fine = Trial(env, f"substeps={finest},{EXACT}").run(starts)
    half = Trial(env, f"substeps={finest // 2},{EXACT}")
    half.variant = "the reference at twice its step"
    ends.append(half.run(starts))
    found = []
    for trial, end in zip([*trials, half], ends, strict=True):
        ratio = statistics.median(own / chosen for own, chosen in zip(trial.rates, trials[0].rates, strict=False))
        row = {"task": task, "variant": trial.variant, "rate": statistics.median(trial.rates), "to_chosen": ratio}
        found.append(row | judge(model, starts, fine, end))
    return found


def trade_on_cuda(task: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Rates of captured physics, and how often the solver stopped at its limit."""
    device = torch.device("cuda")
    env: Any = tasks.make(task, preset(task).env, args.num_envs or 24576, device, 0, spread_clocks=True)
    generator = torch.Generator(device).manual_seed(1)
    env.reset()
    action = draw_action(env, generator)
    for step in range(20 * args.starts):
        if step % HOLD == 0:
            action = draw_action(env, generator)
        env.step(action)
    found: list[dict[str, Any]] = []
    for variant in (CHOSEN, *args.variants):
        found.append({"task": task, "variant": variant} | captured_rate(env, variant, args.rounds))
        found[-1]["to_chosen"] = found[-1]["rate"] / found[0]["rate"]
    return found


def captured_rate(env: Any, variant: str, rounds: int) -> dict[str, float]:
    """Of a variant that starts from the environment's state again and again."""
    from echelon.sim.warp import WarpEngine

    model = env.model()
    substeps, room = vary(model, env.substeps, variant), probe(model)
    contacts, constraints = (
        max(room.contacts or 0, env.config.contacts),
        max(room.constraints or 0, env.config.constraints),
    )
    engine, base = WarpEngine(model, env.num_envs, env.device, contacts, constraints), env.engine
    engine.load_state_dict(base.state_dict())
    everything = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)

    def physics() -> None:
        engine.set_state(everything, base.qpos, base.qvel)
        for name in ("ctrl", "xfrc_applied", "mocap_pos", "mocap_quat"):
            getattr(engine, name).copy_(getattr(base, name))
        for _ in range(HORIZON):
            engine.step(substeps)

    steps = HORIZON * env.num_envs
    run = Captured(physics, env.device, around=engine.capturing)
    rates = [rate(run, steps, 0.5, env.device) for _ in range(rounds)]
    engine.limited.zero_()
    run()
    return {"rate": statistics.median(rates), "at_limit": engine.limited.sum().item() / steps}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    if "error_95" not in rows[0]:
        return markdown(
            ("variant", "M control steps/s", "to chosen", "at limit"),
            (
                (row["variant"], f"{row['rate'] / 1e6:.3f}", f"{row['to_chosen']:.2f}", f"{row['at_limit']:.2%}")
                for row in rows
            ),
        )
    headings = (
        *("variant", "control steps/s per core", "to chosen", "error: median, 95 %", "adrift: median, 95 %"),
        *("depth: median, 95 %, most", "at limit", "bad"),
    )
    return markdown(
        headings,
        (
            (
                *(row["variant"], f"{row['rate']:.0f}", f"{row['to_chosen']:.2f}"),
                f"{row['error_median']:.4f}, {row['error_95']:.3f}",
                f"{row['adrift_mm_median']:.3f}, {row['adrift_mm_95']:.2f} mm",
                f"{row['depth_mm_median']:.2f}, {row['depth_mm_95']:.2f}, {row['depth_mm_most']:.1f} mm",
                *(f"{row['at_limit']:.1%}", row["bad"]),
            )
            for row in rows
        ),
    )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--variants", nargs="*", default=[])
    parser.add_argument("--num-envs", type=int, help="default: 64 on the CPU, 24,576 on CUDA")
    parser.add_argument("--starts", type=int, default=4, help="states of each simulation")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="append a line per variant to this file")
    args = parser.parse_args()
    require_device(args.device)
    for task in args.tasks:
        rows = trade_on_cpu(task, args) if args.device == "cpu" else trade_on_cuda(task, args)
        states = f", {rows[0]['states']} states" if "states" in rows[0] else ""
        print(f"{task}{states}\n\n{table(rows)}\n", flush=True)
        append(args.json, ({"device": args.device} | row for row in rows))


if __name__ == "__main__":
    command(main)

"""How well do the tasks' scenes behave? Depth of contacts, joints beyond their stops, saturation and slip.

    OMP_NUM_THREADS=1 python benchmarks/physics_health.py Humanoid Anymal [--variants solimp=0.95/0.99] [--json FILE]

Environments take random actions, each held for 15 control steps, so that joints reach their stops and bodies press on
each other. After every control step of the CPU engine all contacts are looked at. *Depth* is of each state's deepest
contact of a kind of pair: 95 % of the states with such a contact are below the first number, all below the second.
*Beyond* is how far the joint that is farthest beyond its stop is, and the share of states with one beyond by more than
0.1 rad. *Saturated* is the share of actuators at their force limit. *Slip* is the median speed along the surface at
contacts that press. *Starts* is the depth in states right after a reset. To compare two versions of the code, run it in
a checkout of each; to compare settings, name them (`physics_variants.py`).

Rates, and what is lost, on a GPU: `python benchmarks/speed.py TASK ... --iterations 0 --random-steps 1000`.
"""

import argparse
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch
from command import Row, append, command, markdown, options
from physics_variants import CHOSEN, vary

from echelon import tasks
from echelon.presets import preset
from echelon.sim.cpu import CpuEngine

HOLD = 15
"""Control steps for which a random action is held: long enough for a joint to reach its stop."""
BEYOND = 0.1
"""Radians beyond a stop that count."""


class Contacts:
    """Reads the contacts of every simulation of a CPU engine."""

    def __init__(self, engine: CpuEngine) -> None:
        self.engine, self.data = engine, mujoco.MjData(engine.model)
        self.kinds = [self._kind(geom) for geom in range(engine.model.ngeom)]

    def _kind(self, geom: int) -> str:
        """What a geom belongs to: a robot, a free object, or the name of something that stands still."""
        model = self.engine.model
        body = int(model.geom_bodyid[geom])
        root = int(model.body_rootid[body])
        if model.body_mocapid[root] >= 0:
            return model.body(root).name
        if model.body_dofnum[root] == 6 and model.body_subtreemass[root] == model.body_mass[root]:
            return "object"
        weld = int(model.body_weldid[body])
        return model.geom(geom).name if weld == 0 and model.body_treeid[body] < 0 else "robot"

    def look(self, sim: int, slips: list[float]) -> dict[str, float]:
        """Depth in metres of the deepest contact by kind of pair; slips of those that press are appended."""
        model, data = self.engine.model, self.data
        self.engine._batch.get_data(sim, data)
        deepest: dict[str, float] = {}
        for index, contact in enumerate(data.contact):
            if contact.exclude or contact.dist > 0:
                continue
            pair = " – ".join(sorted(self.kinds[geom] for geom in contact.geom))
            deepest[pair] = max(deepest.get(pair, 0.0), -float(contact.dist))
            wrench = np.zeros(6)
            mujoco.mj_contactForce(model, data, index, wrench)
            if wrench[0] > 0.01:
                slips.append(self._slip(contact))
        return deepest

    def _slip(self, contact: Any) -> float:
        """Relative speed of the two bodies at a contact, along its plane."""
        model, data = self.engine.model, self.data
        speed = np.zeros(3)
        for geom, sign in zip(contact.geom, (-1.0, 1.0), strict=True):
            body, velocity = int(model.geom_bodyid[geom]), np.zeros(6)
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, velocity, 0)
            speed += sign * (velocity[3:] + np.cross(velocity[:3], contact.pos - data.xpos[body]))
        return float(np.linalg.norm(contact.frame.reshape(3, 3)[1:] @ speed))


def varied(task: str, variant: str) -> Any:
    """The task's class, with its physics changed."""
    original: Any = tasks.info(task).task

    class Varied(original):
        def model(self) -> mujoco.MjModel:
            model = super().model()
            type(self).substeps = vary(model, original.substeps, variant)
            return model

    return Varied


def examine(task: str, variant: str, args: argparse.Namespace) -> Row:
    """All figures of a task under one variant of its physics."""
    env = varied(task, variant)(preset(task).env, args.num_envs, torch.device("cpu"), 0, spread_clocks=True)
    env.reset()
    contacts, model = Contacts(env.engine), env.engine.model
    hinges = np.flatnonzero(model.jnt_limited & (model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE))
    low, high = model.jnt_range[hinges].T
    most = np.abs(model.actuator_forcerange).max(axis=1) if model.nu else np.zeros(0)
    force, generator = env.engine.read("actuator_force"), torch.Generator().manual_seed(1)
    depth: defaultdict[str, list[float]] = defaultdict(list)
    starts, beyond, saturated, slips = [], [], [], []
    spent = lost = 0.0
    everything = torch.ones(env.num_envs, dtype=torch.bool)
    marker = env.engine.mocap_pos.clone(), env.engine.mocap_quat.clone()
    env.engine.set_state(everything, env.engine.qpos.clone(), env.engine.qvel.clone())  # for contacts of moved objects
    env.engine.mocap_pos.copy_(marker[0])
    env.engine.mocap_quat.copy_(marker[1])
    for sim in range(env.num_envs):
        starts.append(max(contacts.look(sim, []).values(), default=0.0))
    action = torch.zeros(env.num_envs, env.action_dim)
    for step in range(args.steps):
        if step % HOLD == 0:
            action = 2 * torch.rand(env.num_envs, env.action_dim, generator=generator) - 1
        began = time.process_time()
        done = env.step(action)
        spent += time.process_time() - began
        lost += float(done.log["quarantined"].sum())
        going = ~(done.terminated | done.truncated).numpy()
        angles = env.engine.qpos.numpy()[going][:, model.jnt_qposadr[hinges]]
        beyond.append(np.maximum(angles - high, low - angles).max(axis=1, initial=0.0))
        if (most > 0).any():
            saturated.append((np.abs(force.numpy()[going]) >= 0.999 * most)[:, most > 0].mean())
        if step % 3 == 0:
            for sim in np.flatnonzero(going):
                for pair, value in contacts.look(int(sim), slips).items():
                    depth[pair].append(value)
    over = np.concatenate(beyond)
    return {
        "task": task,
        "variant": variant,
        "states": len(over),
        "depth_mm": {
            pair: [round(1e3 * x, 2) for x in np.percentile(values, (50, 95, 100))] for pair, values in depth.items()
        },
        "start_depth_mm": [round(1e3 * x, 2) for x in np.percentile(starts, (50, 95, 100))],
        "beyond_rad": [round(x, 3) for x in np.percentile(over, (95, 100))],
        "beyond_share": float((over > BEYOND).mean()),
        "saturated": float(np.mean(saturated)) if saturated else None,
        "slip_mm_s": round(1e3 * float(np.median(slips)), 1) if slips else None,
        "quarantined": lost,
        "rate": args.steps * env.num_envs / spent,
    }


def table(rows: list[Row]) -> str:
    headings = ("task", "settings", "depth: 95 %, most", "starts: 95 %, most", "beyond stops: 95 %, most, > 0.1 rad")
    headings += ("saturated", "slip", "quarantined", "control steps/s per core")
    lines = []
    for row in rows:
        depths = (f"{pair} {high:.1f}, {most:.1f} mm" for pair, (_, high, most) in sorted(row["depth_mm"].items()))
        _, high, most = row["start_depth_mm"]
        beyond = f"{row['beyond_rad'][0]:.2f}, {row['beyond_rad'][1]:.2f} rad, {row['beyond_share']:.1%}"
        saturated = "–" if row["saturated"] is None else f"{row['saturated']:.1%}"
        slip = "–" if row["slip_mm_s"] is None else f"{row['slip_mm_s']:.1f} mm/s"
        line = (row["task"], row["variant"], "; ".join(depths), f"{high:.1f}, {most:.1f} mm", beyond, saturated, slip)
        lines.append((*line, f"{row['quarantined']:.0f}", f"{row['rate']:.0f}"))
    return markdown(headings, lines)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--variants", nargs="*", default=[])
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--json", type=Path, help="append a line per variant to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for task in args.tasks:
        rows = [examine(task, variant, args) for variant in (CHOSEN, *args.variants)]
        print(f"{table(rows)}\n", flush=True)
        append(args.json, rows)


if __name__ == "__main__":
    command(main)

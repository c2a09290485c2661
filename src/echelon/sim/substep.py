"""One physics step of all worlds: each part by a kernel of ours where the model allows it, else by MuJoCo Warp.

| part | in place of | in |
|---|---|---|
| `smooth` | kinematics, inertia, forces, integration | `smooth.py` |
| `collision` | one narrow phase for all shapes | `collision.py` |
| `rows` | `make_constraint` | `rows.py` |
| `newton` | `solve` | `newton.py` |
"""

from collections.abc import Collection
from typing import Any

import mujoco_warp as mjw
from mujoco_warp._src.smooth import tendon_armature

from echelon.sim import collision, newton, rows, smooth
from echelon.sim.kernel import unknown

PARTS = ("smooth", "collision", "rows", "newton")


class Substep:
    """The parts that serve a Model and Data, and `reasons` why MuJoCo Warp serves the others."""

    def __init__(self, m: Any, d: Any, parts: Collection[str] = PARTS) -> None:
        self._m, self._d = m, d
        reason = unknown(m, d, "forward", "integrate")
        found = {
            "smooth": reason or smooth.unsupported(m),
            "collision": reason or collision.unsupported(m),
            "rows": reason or rows.unsupported(m, d),
            "newton": reason or newton.unsupported(m, d),
        }
        self.reasons = {part: found[part] for part in found if found[part] and part in parts and part != "collision"}
        used = [part for part in parts if found[part] is None]
        if "newton" not in used and "rows" in used:
            used.remove("rows")  # it leaves out entries of J that the stock solver reads
        self.used = tuple(used)
        self._smooth = smooth.SmoothDynamics(m, d) if "smooth" in used else None
        self._collide = collision.Collision(m).detect if "collision" in used else mjw.collision
        self._rows = rows.Rows(m, d).make if "rows" in used else mjw.make_constraint
        self._solve = newton.solve if "newton" in used else mjw.solve
        if self._smooth or "newton" in used:
            m.opt.run_qacc_smooth = False  # the warm start is as good a start, and saves a factorization

    def __str__(self) -> str:
        """Say whose kernels step the physics, and why some are MuJoCo Warp's."""
        reasons = "".join(f"; {part} is MuJoCo Warp's ({reason})" for part, reason in self.reasons.items())
        return ("fused kernels" if self.used else "MuJoCo Warp's kernels") + reasons

    def forward(self, everything: bool) -> None:
        """Compute accelerations at the current state; `everything` also writes what force sensors read."""
        m, d = self._m, self._d
        if self._smooth:
            self._smooth.forward(everything)
            self._collide(m, d)
            self._rows(m, d)
        else:
            mjw.fwd_kinematics(m, d)
            mjw.crb(m, d)
            tendon_armature(m, d)
            if m.opt.run_qacc_smooth:
                mjw.factor_m(m, d)
            self._collide(m, d)
            self._rows(m, d)
            mjw.transmission(m, d)
            mjw.fwd_velocity(m, d)
            mjw.fwd_actuation(m, d)
            mjw.fwd_acceleration(m, d)
        self._solve(m, d)

    def integrate(self) -> None:
        """Advance the state by a timestep."""
        m, d = self._m, self._d
        if self._smooth:
            self._smooth.integrate()
        elif m.opt.integrator == mjw.IntegratorType.EULER:
            mjw.euler(m, d)
        else:
            mjw.implicit(m, d)

    def refresh(self) -> None:
        """Compute poses and velocities at the current state."""
        if self._smooth:
            self._smooth.kinematics()
        else:
            mjw.fwd_kinematics(self._m, self._d)
            mjw.com_vel(self._m, self._d)

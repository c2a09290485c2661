"""Operational-space control of an arm: torques that accelerate its tool as commanded, batched, on every engine.

Khatib's law, without a gravity term (the arm has none) and without Coriolis terms:

    Λ = (J M⁻¹ Jᵀ)⁻¹                        inertia at the tool
    τ = Jᵀ Λ F + (I − Jᵀ Λ J M⁻¹) M b       F: wanted acceleration of the tool, b: wanted acceleration of the joints
      = Jᵀ Λ (F − J b) + M b                the same, in the order it is computed here

The engines store M and J in different forms, so both are computed from poses, which every engine has. All of it is in
float64: for a stretched arm, M⁻¹ Jᵀ loses too much precision in float32, and more in TF32.
"""

import torch
from torch import Tensor

from echelon.sim.contract import Engine

DAMPING = 1e-6
"""Added to the diagonal of J M⁻¹ Jᵀ, in 1/kg: bounds Λ where the arm is stretched."""


def solve(matrix: Tensor, right: Tensor) -> Tensor:
    """`matrix⁻¹ right` of positive definite matrices `[N, n, n]` and `right [N, n, k]`.

    Gauss-Jordan elimination, which needs no pivoting here, as n rounds of pointwise operations: the batched solvers of
    a CUDA library may wait for the device, and cannot all be captured in a graph.
    """
    n = matrix.shape[-1]
    unit = torch.eye(n, dtype=matrix.dtype, device=matrix.device)
    rows = torch.cat((matrix, right), dim=-1)
    for k in range(n):
        pivot_row = rows[:, k : k + 1] / rows[:, k : k + 1, k : k + 1]
        rows = rows - (rows[:, :, k] - unit[k])[:, :, None] * pivot_row  # the pivot's own row becomes `pivot_row`
    return rows[:, :, n:]


class Arm:
    """A chain of hinges with all bodies attached to it, in the engine's current state.

    `joints` are hinges in the order from base to tool. Bodies further down whose joints are not listed, such as
    fingers, count as rigidly attached in their current pose.
    """

    def __init__(self, engine: Engine, joints: tuple[str, ...]) -> None:
        model, device = engine.model, engine.device
        ids = [model.joint(name).id for name in joints]
        chains: list[set[int]] = [set()]  # of every body: itself and its parents, up to the world
        for body in range(1, model.nbody):
            chains.append({body} | chains[int(model.body_parentid[body])])
        carriers = [int(model.jnt_bodyid[joint]) for joint in ids]
        bodies = [body for body, chain in enumerate(chains) if carriers[0] in chain]
        self._joints, self._bodies = slice(ids[0], ids[-1] + 1), slice(bodies[0], bodies[-1] + 1)

        def constant(values: object) -> Tensor:
            return torch.as_tensor(values, dtype=torch.float64).to(device)

        self._moved = constant([[carrier in chains[body] for carrier in carriers] for body in bodies])[:, None, :]
        self._root_mass = constant(model.body_mass[bodies]).sqrt()[:, None, None]
        self._root_inertia = constant(model.body_inertia[bodies]).sqrt()[:, :, None]
        self._armature = torch.diag(constant(model.dof_armature[model.jnt_dofadr[ids]]))
        self._anchor, self._axis = engine.read("xanchor"), engine.read("xaxis")
        self._centre, self._frame = engine.read("xipos"), engine.read("ximat")

    def jacobian(self, point: Tensor) -> Tensor:
        """`[N, 6, J]`: linear, then angular velocity of the tool at `point [N, 3]`, per joint velocity; world axes."""
        anchor, axis = self._hinges()
        linear = torch.linalg.cross(axis, point.double()[:, None] - anchor)
        return torch.cat((linear, axis), dim=2).mT

    def mass_matrix(self) -> Tensor:
        """`[N, J, J]`: joint-space inertia, armature included.

        The kinetic energy is a sum of squares over the bodies' centres and principal axes, so M is the product of the
        matrix of their roots with itself: `[6 · bodies, J]`, rows of `√m v` and `√I ω` per unit of joint velocity.
        """
        anchor, axis = self._hinges()
        centre = self._centre[:, self._bodies].double()
        frame = self._frame[:, self._bodies].reshape(*centre.shape, 3).double()
        reach = centre[:, :, None] - anchor[:, None]
        linear = torch.linalg.cross(axis[:, None].expand_as(reach), reach).mT
        angular = (frame.mT.flatten(1, 2) @ axis.mT).view_as(linear)  # axes in the bodies' principal frames
        roots = torch.cat((self._root_mass * linear, self._root_inertia * angular), dim=2) * self._moved
        roots = roots.flatten(1, 2)
        return roots.mT @ roots + self._armature

    def torque(self, point: Tensor, tool: Tensor, joints: Tensor) -> Tensor:
        """Torques `[N, J]` that accelerate the tool at `point [N, 3]` by `tool [N, 6]`, and in its null space joints
        by `joints [N, J]`."""
        jacobian, mass = self.jacobian(point), self.mass_matrix()
        mobility = jacobian @ solve(mass, jacobian.mT)
        mobility = mobility + DAMPING * torch.eye(6, dtype=mobility.dtype, device=mobility.device)
        beside = joints.double()[:, :, None]
        force = solve(mobility, tool.double()[:, :, None] - jacobian @ beside)
        return (jacobian.mT @ force + mass @ beside)[:, :, 0]

    def _hinges(self) -> tuple[Tensor, Tensor]:
        """Anchors and axes of the joints, `[N, J, 3]` each, in the world."""
        return self._anchor[:, self._joints].double(), self._axis[:, self._joints].double()

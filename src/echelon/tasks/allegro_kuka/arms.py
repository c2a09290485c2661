"""The arms and hands of a scene: joints, servo targets, sensors, and the room that the hands take up."""

from itertools import product
from typing import NamedTuple

import mujoco
import numpy as np
import torch
from torch import Tensor

from echelon.sim.contract import Engine
from echelon.tasks.allegro_kuka.objects import gaps
from echelon.tasks.allegro_kuka.scene import ARM_JOINTS, DAMPING, HAND_JOINTS, STIFFNESS

ARM_SPEED, HAND_SPEED = 10.0, 6.283
"""Speed limits in rad/s."""
START_SHARE, START_SPEED = 0.1, 0.5
"""Joints start at the default pose plus this share of the way to a random angle, with up to this speed in rad/s."""
BALL = 0.02
"""Radius of the balls that a palm is filled with, in metres; they overlap."""


class Palms(NamedTuple):
    """Sensor readings of `A` arms."""

    centre: Tensor
    """`[N, A, 3]`"""
    motion: Tensor
    """`[N, A, 10]`: quaternion x y z w, linear and angular velocity of the last link."""
    fingertips: Tensor
    """`[N, A, 4, 3]`"""


class Arms:
    """`A` arms with hands, whose joints are adjacent in the state. `pose` are the default angles of an arm."""

    def __init__(self, engine: Engine, pose: tuple[float, ...], relative: bool, control_step: float) -> None:
        model, device = engine.model, engine.device
        self.engine, self.count = engine, model.nu // len((*ARM_JOINTS, *HAND_JOINTS))
        names = [f"arm{arm}/{name}" for arm in range(self.count) for name in (*ARM_JOINTS, *HAND_JOINTS)]
        ids = [int(model.joint(name).id) for name in names]
        if [int(model.actuator(name).id) for name in names] != list(range(model.nu)):
            raise ValueError("servos are not in the order of the joints")
        first, speed = (int(field[ids[0]]) for field in (model.jnt_qposadr, model.jnt_dofadr))
        self.qpos, self.qvel = slice(first, first + len(ids)), slice(speed, speed + len(ids))

        def constant(values: object) -> Tensor:
            return torch.as_tensor(values, dtype=torch.float32, device=device)

        self.low, self.high = constant(model.jnt_range[ids]).unbind(1)
        self._middle = constant((*pose, *[0.0] * len(HAND_JOINTS)) * self.count)
        self._is_arm = torch.tensor(["hand/" not in name for name in names], device=device)
        self._relative, self._stride = self._is_arm & relative, ARM_SPEED * control_step
        limits = constant([HAND_SPEED if "hand/" in name else ARM_SPEED for name in names])
        self.lead = limits * DAMPING / STIFFNESS
        """Largest distance of a servo's target from its joint that keeps the joint within the speed limit."""
        self.target = torch.zeros(engine.num_sims, len(ids), device=device)
        """`[N, 23 A]`: joint targets chosen by the policy."""
        starts = [int(model.sensor(f"arm{arm}/palm").adr[0]) for arm in range(self.count)]
        # MuJoCo's quaternion is w x y z.
        self._sensors = torch.tensor(
            [[start + i for i in (0, 1, 2, 4, 5, 6, 3, *range(7, 25))] for start in starts], device=device
        )

    def angles(self) -> Tensor:
        """`[N, 23 A]`."""
        return self.engine.qpos[:, self.qpos].float()

    def velocities(self) -> Tensor:
        return self.engine.qvel[:, self.qvel].float()

    def unscaled(self) -> Tensor:
        """Joint angles scaled to [-1, 1] over each joint's range."""
        return (2.0 * self.angles() - self.high - self.low) / (self.high - self.low)

    def speeds(self) -> tuple[Tensor, Tensor]:
        """Sums `[N]` of absolute velocities, of the arms' and of the hands' joints."""
        speed = self.velocities().abs()
        return (speed * self._is_arm).sum(dim=1), (speed * ~self._is_arm).sum(dim=1)

    def palms(self) -> Palms:
        centre, motion, tips = self.engine.sensordata.float()[:, self._sensors].split((3, 10, 12), dim=2)
        return Palms(centre, motion, tips.unflatten(2, (4, 3)))

    def starts(self, share: Tensor) -> Tensor:
        """Start angles for `share [N, 23 A]` in [0, 1] of each range, about the default pose and within the range."""
        drawn = self.low + (self.high - self.low) * share
        return (self._middle + START_SHARE * (drawn - self._middle)).clamp(self.low, self.high)

    def hold(self, mask: Tensor) -> None:
        """Set targets to the current joint angles in the environments of `mask [N]`."""
        self.target.copy_(torch.where(mask[:, None], self.angles(), self.target))

    def control(self, action: Tensor) -> Tensor:
        """Update the policy's targets by an action; returns the servos' targets `[N, 23 A]`."""
        absolute = self.low + 0.5 * (action + 1.0) * (self.high - self.low)
        moved = (self.target + self._stride * action).clamp(self.low, self.high)
        self.target.copy_(torch.where(self._relative, moved, absolute))
        return self.reachable()

    def reachable(self) -> Tensor:
        """The targets `[N, 23 A]`, no further from the joints than the speed limits allow."""
        angles = self.angles()
        return self.target.clamp(angles - self.lead, angles + self.lead)


class Hands:
    """The shapes of the hands that touch, as balls: three in a capsule, a grid in a box."""

    def __init__(self, engine: Engine) -> None:
        model, geoms, offsets, radii = engine.model, [], [], []
        for geom in np.flatnonzero((model.geom_contype & 1) & (model.geom_bodyid > 0)):
            size = model.geom_size[geom]
            if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_BOX:
                found, radius = [*product(*(np.linspace(BALL - half, half - BALL, 3) for half in size))], BALL
            else:
                found, radius = [(0.0, 0.0, share * size[1]) for share in (-1.0, 0.0, 1.0)], size[0]
            geoms += [int(geom)] * len(found)
            offsets += found
            radii += [radius] * len(found)
        self._geoms = torch.tensor(geoms, device=engine.device)
        self._offsets, self._radii = (
            torch.tensor(np.array(values), dtype=torch.float32, device=engine.device) for values in (offsets, radii)
        )
        self._position, self._frame = engine.read("geom_xpos"), engine.read("geom_xmat")

    def balls(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """`[N, P, 3]`: their centres in the world, in these environments."""
        position = self._position[rows][:, self._geoms].float()
        frame = self._frame[rows][:, self._geoms].float().reshape(*position.shape, 3)
        # No batched product: of millions of 3 x 3 matrices it takes longer than a step of physics.
        return position + (frame * self._offsets[:, None]).sum(dim=3)

    def meet(self, balls: Tensor, pose: Tensor, scales: Tensor) -> Tensor:
        """`[N]` bool: cuboids at `pose [N, 7]` with `scales [N, 3]` that some of `balls [N, P, 3]` reach into."""
        return (gaps(balls, pose, scales) < self._radii).any(dim=1)

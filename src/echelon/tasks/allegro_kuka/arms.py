"""The arms and hands of a scene: joints, servo targets and sensors."""

from typing import NamedTuple

import mujoco
import torch
from torch import Tensor

from echelon.sim.contract import Engine
from echelon.tasks.allegro_kuka.robot import ARM_JOINTS, DAMPING, FINGERS, HAND_JOINTS, STIFFNESS
from echelon.tasks.allegro_kuka.scene import Workplace, arm_prefix

ARM_SPEED, HAND_SPEED = 10.0, 6.283
"""Speed limits in rad/s."""
START_SHARE, START_SPEED = 0.1, 0.5
"""Joints start at the default pose plus this share of the way to a random angle, with up to this speed in rad/s."""


class Palms(NamedTuple):
    """Palms `[N, A, 3]`, motion of the last links `[N, A, 10]` (quaternion x y z w, linear and angular velocity), and
    fingertips `[N, A, 4, 3]` of all arms."""

    centre: Tensor
    motion: Tensor
    fingertips: Tensor


class Arms:
    """`A` arms with hands, whose joints are adjacent in the state."""

    def __init__(self, engine: Engine, place: Workplace, relative: bool, control_step: float) -> None:
        model, device = engine.model, engine.device
        self.engine, self.count = engine, len(place.bases)
        prefixes = [arm_prefix(arm) for arm in range(self.count)]
        names = [prefix + name for prefix in prefixes for name in (*ARM_JOINTS, *HAND_JOINTS)]
        ids = [int(model.joint(name).id) for name in names]
        if [int(model.actuator(name).id) for name in names] != list(range(model.nu)):
            raise ValueError("servos are not in the order of the joints")
        first, speed = (int(field[ids[0]]) for field in (model.jnt_qposadr, model.jnt_dofadr))
        self.qpos, self.qvel = slice(first, first + len(ids)), slice(speed, speed + len(ids))

        def constant(values: object) -> Tensor:
            return torch.as_tensor(values, dtype=torch.float32, device=device)

        self.low, self.high = constant(model.jnt_range[ids]).unbind(1)
        self._middle = constant((*place.arm_pose, *[0.0] * len(HAND_JOINTS)) * self.count)
        is_arm = ([True] * len(ARM_JOINTS) + [False] * len(HAND_JOINTS)) * self.count
        self._is_arm = torch.tensor(is_arm, device=device)
        self._relative = torch.tensor([relative and arm for arm in is_arm], device=device)
        self._stride = ARM_SPEED * control_step
        limits = constant([ARM_SPEED if arm else HAND_SPEED for arm in is_arm])
        self.lead = limits * DAMPING / STIFFNESS
        """Largest distance of a servo's target from its joint that keeps the joint within the speed limit."""
        self.target = torch.zeros(engine.num_sims, len(ids), device=device)
        """`[N, 23 A]`: joint targets chosen by the policy."""
        self._centre, self._motion, self._tips = (
            torch.tensor(columns, device=device) for columns in _sensors(model, prefixes)
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
        sensors, shapes = self.engine.sensordata.float(), ((3,), (10,), (len(FINGERS), 3))
        columns = zip((self._centre, self._motion, self._tips), shapes, strict=True)
        return Palms(*(sensors[:, ids].unflatten(1, (self.count, *shape)) for ids, shape in columns))

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
        angles = self.angles()
        return self.target.clamp(angles - self.lead, angles + self.lead)


def _sensors(model: mujoco.MjModel, prefixes: list[str]) -> tuple[list[int], list[int], list[int]]:
    """Columns of `sensordata`: the palms' centres; their quaternions as x y z w and velocities; the fingertips."""

    def read(name: str, order: tuple[int, ...] = (0, 1, 2)) -> list[int]:
        start = int(model.sensor(name).adr[0])
        return [start + i for i in order]

    centre, motion, tips = [], [], []
    for prefix in prefixes:
        centre += read(f"{prefix}palm")
        motion += read(f"{prefix}palm_quat", (1, 2, 3, 0))
        motion += read(f"{prefix}palm_linvel") + read(f"{prefix}palm_angvel")
        for finger in FINGERS:
            tips += read(f"{prefix}hand/{finger}")
    return centre, motion, tips

"""Hopper: make a planar one-legged robot hop forward without falling.

Action, observation, reward and episode are tabulated in `docs/tasks/hopper.md`.
"""

import torch
from torch import Tensor

from echelon.envs.contract import Groups
from echelon.tasks.hopper.settings import HopperConfig
from echelon.tasks.mujoco_task import MujocoTask, ObsPart, StartState


class Hopper(MujocoTask[HopperConfig]):
    """A planar one-legged robot that hops forward."""

    scene = "hopper.xml"
    substeps = 4
    # Standing with bent knee and the foot flat: hip and ankle share the knee's angle.
    stance = (0.0, -0.05, 0.0, -0.4, 0.8, -0.4)
    velocity_clip = 10.0
    """Observed velocities are clipped to this magnitude: an impact would otherwise dominate the normaliser."""
    privileged = ("0:1", "5:7")  # the torso's height and velocity

    def prepare(self) -> None:
        self._stance = self.constant(self.stance)
        self._posture = self.constant((0.0, 0.0, 1.0, 1.0, 1.0, 1.0))
        self._floor_height = float(self.engine.model.body("torso").pos[2])

    def start_state(self) -> StartState:
        noise = self.config.start_noise
        qpos = self._stance + self._posture * self.uniform(-noise, noise, 6)
        return StartState(qpos, self.uniform(-noise, noise, 6))

    def height(self) -> Tensor:
        """`[N]`: height of the torso above the floor. The joint's zero is the model's start, not the floor."""
        return self.engine.qpos[:, 1].float() + self._floor_height

    def forward_velocity(self) -> Tensor:
        """`[N]` m/s."""
        return self.engine.qvel[:, 0].float()

    def observe(self) -> Groups:
        posture = self.engine.qpos[:, 2:].float()
        velocity = self.engine.qvel.float().clamp(-self.velocity_clip, self.velocity_clip)
        return {"policy": torch.cat((self.height()[:, None], posture, velocity), dim=1)}

    def layout(self) -> tuple[ObsPart, ...]:
        joints = ("x", "z", "pitch", "hip", "knee", "ankle")
        return (
            ObsPart("joint position", joints[1:2], offset=-self._floor_height),
            ObsPart("joint position", joints[2:]),
            ObsPart("joint velocity", joints, clip=self.velocity_clip),
        )

    def reward(self, action: Tensor) -> Tensor:
        progress = self.forward_velocity().clamp(max=self.config.target_velocity)
        return progress + self.config.alive_reward - self.config.action_cost * action.square().mean(dim=1)

    def failed(self) -> Tensor:
        return (self.height() < self.config.min_height) | (self.engine.qpos[:, 2].abs() > self.config.max_pitch)

    def figures(self) -> dict[str, Tensor]:
        return {"forward_velocity": self.forward_velocity(), "episode/distance": self.engine.qpos[:, 0].float()}

"""A task of a user's own, in a module of their own: a pendulum to be held up."""

from dataclasses import dataclass

import mujoco
import torch
from torch import Tensor

from echelon.config import ModelConfig, TrainConfig, UpdateConfig
from echelon.envs.contract import Groups
from echelon.tasks.mujoco_task import MujocoTask, StartState
from echelon.tasks.settings import MujocoTaskConfig

MODEL = """
<mujoco>
  <worldbody>
    <body><joint name="hinge" axis="0 1 0"/><geom type="capsule" size="0.05" fromto="0 0 0 0 0 1"/></body>
  </worldbody>
  <actuator><motor joint="hinge" gear="20"/></actuator>
</mujoco>
"""


@dataclass(frozen=True)
class PoleConfig(MujocoTaskConfig):
    """Settings of the pole."""

    episode_length: int = 20
    """Control steps."""
    spread: tuple[float, float] = (-0.2, 0.2)
    """Angles at the start."""


class Pole(MujocoTask[PoleConfig]):
    substeps = 5
    obs_spec = {"policy": 2}  # noqa: RUF012
    preset = TrainConfig(
        env=PoleConfig(),
        algo="cpo",
        num_envs=12,
        policies=3,
        model=ModelConfig(hidden=(8,)),
        update=UpdateConfig(horizon=8),
    )

    def model(self) -> mujoco.MjModel:
        return mujoco.MjModel.from_xml_string(MODEL)

    def observe(self) -> Groups:
        return {"policy": torch.cat((self.engine.qpos, self.engine.qvel), dim=1).float()}

    def reward(self, action: Tensor) -> Tensor:
        return self.engine.qpos[:, 0].cos()

    def start_state(self) -> StartState:
        angle = self.uniform(*self.config.spread, 1)
        return StartState(angle, torch.zeros_like(angle))


NOT_A_MAKER = 3

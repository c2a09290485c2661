"""Skeleton: bring the tip of an arm to a goal, which is elsewhere in every episode.

`echelon new-task NAME` writes this file under that name, for you to change.
"""

from dataclasses import dataclass
from pathlib import Path

import mujoco
import torch
from torch import Tensor

from echelon.config import ModelConfig, TrainConfig
from echelon.envs.contract import Groups
from echelon.tasks.mujoco_task import MujocoTask, StartState
from echelon.tasks.settings import MujocoTaskConfig


@dataclass(frozen=True)
class SkeletonConfig(MujocoTaskConfig):
    """Settings of the task. Each is a flag of `echelon train`: --env.effort-cost 0.1"""

    episode_length: int = 100
    """Control steps of 0.02 s after which an episode is truncated."""
    effort_cost: float = 0.01
    """Weight of the squared action that is taken off the reward."""


class Skeleton(MujocoTask[SkeletonConfig]):
    """All tensors have a row for each of `num_envs` simulations, and nothing branches on their values."""

    substeps = 4  # of MuJoCo's timestep, so a control step takes 0.02 s
    preset = TrainConfig(env=SkeletonConfig(), num_envs=192, env_steps=600_000, model=ModelConfig(hidden=(64, 64)))

    def model(self) -> mujoco.MjModel:
        return mujoco.MjModel.from_xml_path(str(Path(__file__).with_name("skeleton.xml")))

    def prepare(self) -> None:
        self.obs_spec = {"policy": 8}
        self.tip = self.engine.read("site_xpos")[:, self.engine.model.site("tip").id]  # live
        self.kept = {"goal": self.zeros(2)}

    def start_state(self) -> StartState:
        return StartState(self.uniform(-0.5, 0.5, 2), self.uniform(-0.1, 0.1, 2))

    def begin(self, mask: Tensor) -> None:
        self.kept["goal"].copy_(torch.where(mask[:, None], self.uniform(-0.7, 0.7, 2), self.kept["goal"]))

    def observe(self) -> Groups:
        angles, speeds = self.engine.qpos.float(), self.engine.qvel.float()
        return {"policy": torch.cat((angles, speeds, self.tip[:, :2].float(), self.kept["goal"]), dim=1)}

    def reward(self, action: Tensor) -> Tensor:
        effort = self.config.effort_cost * action.square().sum(1)
        return self.total({"near": 1.0 - self._distance(), "effort": -effort})

    def figures(self) -> dict[str, Tensor]:
        return {"distance": self._distance()}

    def _distance(self) -> Tensor:
        return (self.tip[:, :2].float() - self.kept["goal"]).norm(dim=1)

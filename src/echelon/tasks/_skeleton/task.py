"""Skeleton: bring the tip of an arm to a goal, which is elsewhere in every episode."""

import torch
from torch import Tensor

from echelon.envs.contract import Groups
from echelon.tasks._skeleton.settings import SkeletonConfig
from echelon.tasks.mujoco_task import MujocoTask, StartState


class Skeleton(MujocoTask[SkeletonConfig]):
    """All tensors have a row for each of `num_envs` simulations, and nothing branches on their values."""

    scene = "skeleton.xml"
    substeps = 4  # of MuJoCo's timestep, so a control step takes 0.02 s

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

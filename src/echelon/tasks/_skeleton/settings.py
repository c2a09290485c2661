"""Settings of Skeleton, and what training starts from. Without torch, so that a wrong flag is answered at once."""

from dataclasses import dataclass

from echelon.config import ModelConfig, TaskInfo, TrainConfig, UpdateConfig
from echelon.tasks.settings import MujocoTaskConfig


@dataclass(frozen=True)
class SkeletonConfig(MujocoTaskConfig):
    """Settings of the task. Each is a flag of `echelon train`: --env.effort-cost 0.1"""

    episode_length: int = 100
    """Control steps of 0.02 s after which an episode is truncated."""
    effort_cost: float = 0.01
    """Weight of the squared action that is taken off the reward."""


PRESET = TrainConfig(  # PPO; --algo cpo trains an ensemble
    task="Skeleton",
    env=SkeletonConfig(),
    num_envs=192,
    env_steps=600_000,
    model=ModelConfig(hidden=(64, 64)),
    update=UpdateConfig(minibatches=16),
)
TASKS = (TaskInfo("bring the tip of an arm to a goal", PRESET),)

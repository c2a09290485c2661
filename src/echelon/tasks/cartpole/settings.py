"""Settings of CartpoleSwingup, which learns on a laptop in minutes."""

from dataclasses import dataclass
from typing import Annotated

from echelon.algorithms import Preset, short_run_pbt
from echelon.config import ModelConfig, TaskInfo, UpdateConfig
from echelon.config.ranges import NOT_NEGATIVE
from echelon.tasks.settings import MujocoTaskConfig


@dataclass(frozen=True)
class CartpoleConfig(MujocoTaskConfig):
    """Settings of CartpoleSwingup."""

    episode_length: int = 200
    """Control steps of 0.05 s after which an episode is truncated."""
    velocities: bool = True
    """Observe the two velocities; without them a policy needs memory."""
    start_angle: Annotated[float, NOT_NEGATIVE] = 0.3
    """Largest angle from hanging straight down at the start, in radians."""
    start_position: Annotated[float, NOT_NEGATIVE] = 0.5
    """Largest distance of the cart from the centre at the start, in metres."""
    spin_cost: float = 0.01
    """Weight of the squared angular velocity (rad/s) by which the reward of a raised pole shrinks."""
    action_cost: float = 0.01
    """Weight of the squared action that is taken off the reward."""


PRESET = Preset(
    task="CartpoleSwingup",
    num_envs=256,
    env_steps=1_000_000,
    pbt=short_run_pbt(1_000_000),
    env=CartpoleConfig(),
    model=ModelConfig(hidden=(64, 64)),
    update=UpdateConfig(entropy_scale=0.005),
)
TASKS = (TaskInfo("swing a pole up on a cart and hold it there", PRESET),)

"""Settings of Humanoid.

The preset is the paper's, but for the horizon: 16 as in its text and released configs, not 8 as in its table.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from echelon.config import TaskInfo
from echelon.config.ranges import NOT_NEGATIVE
from echelon.tasks.settings import LOCOMOTION, NUM_ENVS, MujocoTaskConfig


@dataclass(frozen=True)
class HumanoidConfig(MujocoTaskConfig):
    """Settings of Humanoid."""

    episode_length: int = 1000
    """Control steps of 0.0166 s after which an episode is truncated."""
    alive_reward: float = 2.0
    """Reward of every step without a fall."""
    up_reward: float = 0.1
    """Reward of every step with the torso's axis within 21.6° of vertical."""
    heading_reward: float = 0.5
    """Reward of every step that faces the target; in proportion when facing it less than 0.8 of fully."""
    action_cost: float = 0.01
    """Weight of the squared actions that are taken off the reward."""
    energy_cost: float = 0.05
    """Weight of action times scaled joint velocity, summed over joints in proportion to their motors' strength."""
    limit_cost: float = 0.25
    """Cost of a joint at its stop, in proportion to its motor's strength; nothing up to 98 % of its range."""
    fall_reward: float = -1.0
    """Reward of the step in which the humanoid falls, instead of everything else."""
    fall_height: float = 0.8
    """Height of the torso below which it has fallen, in metres."""
    start_angle: Annotated[float, NOT_NEGATIVE] = 0.2
    """Largest deviation of a joint from zero at the start, in radians; joint limits are kept."""
    start_velocity: Annotated[float, NOT_NEGATIVE] = 0.1
    """Largest joint velocity at the start, in rad/s."""


PRESET = replace(
    LOCOMOTION,
    task="Humanoid",
    env=HumanoidConfig(),
    env_steps=26_000 * NUM_ENVS * 16,
    update=replace(LOCOMOTION.update, reward_scale=0.01),
)
TASKS = (TaskInfo("run on two legs without falling", PRESET),)

"""Settings of Anymal.

The preset is the paper's, but for three numbers of the released configs: the horizon, as the paper's text says too,
the critic's weight (2, not 4) and that of the bounds (1e-3, not 1e-4).
"""

from dataclasses import dataclass, replace
from typing import Annotated

from echelon.config import TaskInfo
from echelon.config.ranges import NOT_NEGATIVE
from echelon.tasks.settings import LOCOMOTION, NUM_ENVS, MujocoTaskConfig


@dataclass(frozen=True)
class AnymalConfig(MujocoTaskConfig):
    """Settings of Anymal."""

    episode_length: int = 2500
    """Control steps of 0.02 s after which an episode is truncated."""
    max_forward: float = 2.0
    """Largest commanded velocity forward and backward, in m/s."""
    max_sideways: float = 1.0
    """Largest commanded velocity to either side, in m/s."""
    max_turn: float = 1.0
    """Largest commanded turning rate, in rad/s."""
    action_scale: float = 0.5
    """Change of a joint's target by an action of 1, in radians."""
    linear_reward: float = 0.02
    """Reward of a step at exactly the commanded velocity."""
    angular_reward: float = 0.01
    """Reward of a step at exactly the commanded turning rate."""
    torque_cost: float = 5e-7
    """Weight of the squared torques, in (N·m)², that are taken off the reward."""
    contact_force: float = 1.0
    """Force on base or thigh above which the robot has fallen, in N."""
    terrain: Annotated[float, NOT_NEGATIVE.up_to(1)] = 0.0
    """Height of the roughest ground in metres, to which environments rise level by level; 0 is flat everywhere."""
    world_frame_gravity: bool = False
    """Observe minus the base's z-axis in the world frame, as the paper's code does, not gravity as the base sees it."""


PRESET = replace(
    LOCOMOTION,
    task="Anymal",
    env=AnymalConfig(),
    env_steps=13_000 * NUM_ENVS * 16,
    update=replace(LOCOMOTION.update, learning_rate=3e-4, critic_coef=2.0, bounds_coef=1e-3),
)
TASKS = (TaskInfo("walk on four legs at a commanded velocity", PRESET),)

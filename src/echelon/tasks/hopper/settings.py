"""Settings of Hopper, which learns on a laptop in minutes."""

from dataclasses import dataclass
from typing import Annotated

from echelon.algorithms import Preset, PullConfig, short_run_pbt
from echelon.config import ModelConfig, TaskInfo
from echelon.config.ranges import NOT_NEGATIVE
from echelon.tasks.settings import MujocoTaskConfig


@dataclass(frozen=True)
class HopperConfig(MujocoTaskConfig):
    """Settings of Hopper."""

    episode_length: int = 500
    """Control steps of 0.02 s after which an episode is truncated."""
    target_velocity: float = 2.0
    """Forward velocity above which nothing more is gained, in m/s."""
    alive_reward: float = 1.0
    """Reward of every step without a fall."""
    action_cost: float = 0.05
    """Weight of the mean squared action that is taken off the reward."""
    min_height: float = 0.7
    """Height of the torso below which the hopper has fallen, in metres."""
    max_pitch: float = 0.6
    """Pitch of the torso beyond which it has fallen, in radians."""
    start_noise: Annotated[float, NOT_NEGATIVE] = 0.05
    """Largest deviation of joint angles and velocities from standing at the start."""


PRESET = Preset(
    task="Hopper",
    num_envs=512,
    env_steps=2_000_000,
    pbt=short_run_pbt(2_000_000),
    env=HopperConfig(),
    model=ModelConfig(hidden=(128, 64)),
    pull=PullConfig(beta=5e-3, temperature=0.2),
)
TASKS = (TaskInfo("hop forward on one leg without falling", PRESET),)

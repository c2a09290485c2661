"""Settings of DeceptiveReach, which learns on a laptop in minutes."""

from dataclasses import dataclass
from typing import Annotated

from echelon.algorithms import Preset, short_run_pbt
from echelon.config import ModelConfig, TaskConfig, TaskInfo, UpdateConfig
from echelon.config.ranges import COUNT, Range


@dataclass(frozen=True)
class DeceptiveReachConfig(TaskConfig):
    """Settings of DeceptiveReach. The arena is the square [-1, 1]²."""

    episode_length: Annotated[int, COUNT.up_to(10**5)] = 60
    """Steps after which an episode is truncated."""
    dense_reward: float = 0.1
    """Reward per step at the goal's centre; it falls linearly with the distance, to nothing at a distance of 2."""
    goal_bonus: float = 50.0
    """Reward on reaching the goal, which ends the episode."""
    # The arena is 2 wide: the wall must leave a gap, and starts must lie inside.
    wall_length: Annotated[float, Range(low=0, high=2, open_low=True, open_high=True)] = 1.1
    """Length of the wall across the straight way to the goal. Longer is harder."""
    start_spread: Annotated[float, Range(low=0, high=0.4)] = 0.1
    """Largest deviation of the start position from its centre, along x and y."""


PRESET = Preset(
    task="DeceptiveReach",
    num_envs=768,
    env_steps=800_000,
    pbt=short_run_pbt(800_000),
    env=DeceptiveReachConfig(),
    model=ModelConfig(hidden=(32, 32)),
    update=UpdateConfig(mini_epochs=4, entropy_scale=0.05),
)
# cpo_all solved it with 31 of 32 seeds, CPO centred with 27, PPO with 5: results/ensemble.
TASKS = (TaskInfo("go round a wall that the dense reward runs into", PRESET, best=("cpo_all",)),)

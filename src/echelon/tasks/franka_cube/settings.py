"""Settings of FrankaCubePush and FrankaCubeStack; the presets are the paper's."""

from dataclasses import dataclass, replace
from typing import Annotated

from echelon.algorithms import AdversaryConfig
from echelon.config import ModelConfig, TaskInfo
from echelon.config.ranges import NOT_NEGATIVE, Range
from echelon.tasks.settings import ARM_PBT, NUM_ENVS, PAPER, MujocoTaskConfig

CUBE_A, CUBE_B, GOAL_CUBE = 0.05, 0.07, 0.05
"""Edges of the cubes, in metres: the one that is moved, the one to stack it on, the one that shows the goal."""


@dataclass(frozen=True)
class FrankaCubeConfig(MujocoTaskConfig):
    """Settings of both tasks."""

    episode_length: int = 299
    """Control steps of 1/60 s after which an episode is truncated; the reference says 300, but takes 299."""
    contacts: int | None = 40
    """Contact buffer of a simulation on CUDA. Given, because a probe with random torques seldom grips a cube."""
    constraints: int | None = 250
    """Constraint rows in the buffer of a simulation on CUDA: six per contact, and joints at their limits."""
    max_shift: float = 0.1
    """Shift of the grip point that an action of 1 commands, in metres."""
    max_turn: float = 0.5
    """Turn of the grip point that an action of 1 commands, in radians."""
    lift_height: float = 0.04
    """Cube A is lifted when its centre is higher than its edge plus this above the table, in metres."""
    start_spread: float = 0.25
    """Largest distance of a cube from the table's centre along x and along y at the start, in metres."""
    start_yaw: Annotated[float, NOT_NEGATIVE] = 0.785
    """Largest turn of a cube about the vertical at the start, in radians."""
    joint_spread: Annotated[float, NOT_NEGATIVE] = 0.25
    """Largest deviation of a joint from the default pose at the start, in radians."""


@dataclass(frozen=True)
class FrankaCubePushConfig(FrankaCubeConfig):
    """Settings of FrankaCubePush."""

    # So that a place beside the other cube always exists.
    start_spread: Annotated[float, Range(low=0.5 * (CUBE_A + GOAL_CUBE), open_low=True)] = 0.25
    align_reward: float = 2.0
    """Reward of a step with the cube at the goal; it falls with the distance."""
    success_reward: float = 4.0
    """Reward for reaching the goal, per step that is left."""
    success_distance: float = 0.005
    """The goal is reached within this horizontal distance, in metres."""
    end_cost: float = 5.0
    """Cost of an episode's end without success far from the goal; it falls with the distance."""


@dataclass(frozen=True)
class FrankaCubeStackConfig(FrankaCubeConfig):
    """Settings of FrankaCubeStack."""

    start_spread: Annotated[float, Range(low=0.5 * (CUBE_A + CUBE_B), open_low=True)] = 0.25
    reach_reward: float = 0.1
    """Reward of a step with the gripper around cube A; it falls with the distance."""
    lift_reward: float = 1.5
    """Reward of a step with cube A lifted."""
    align_reward: float = 2.0
    """Reward of a step with cube A lifted to its place on cube B; it falls with the distance."""
    stack_reward: float = 16.0
    """Reward for cube A standing on cube B, released."""
    stack_tolerance: float = 0.02
    """Largest error of cube A's place on cube B, horizontally and in height, in metres."""
    release_distance: float = 0.04
    """Cube A is released when the grip point is farther than this from its centre, in metres."""


PUSH = replace(
    PAPER,
    task="FrankaCubePush",
    env=FrankaCubePushConfig(),
    env_steps=13_000 * NUM_ENVS * 16,
    model=ModelConfig(hidden=(256, 128, 64), lstm=256),
    update=replace(
        PAPER.update,
        sequence=4,  # as the released code; the table's 16, which its config names by an obsolete key, learn later
        mini_epochs=8,
        kl_threshold=0.008,
        entropy_scale=0.005,
    ),
    pull=replace(PAPER.pull, beta=5e-4, temperature=0.1),
    adversary=AdversaryConfig(hidden=(256, 128, 64)),
    pbt=ARM_PBT,
)
STACK = replace(PUSH, task="FrankaCubeStack", env=FrankaCubeStackConfig())

TASKS = (
    TaskInfo("slide a cube to a goal with a Franka arm", PUSH),
    # Return at 100 M steps, one seed: 285; PPO with the paper's LSTM 21 (20 at 77 M with sequences of 16), its CPO 20.
    TaskInfo("put one cube on another with a Franka arm", STACK, best=("ppo_mlp",)),
)

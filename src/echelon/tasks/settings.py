"""Settings of the tasks, apart from the tasks themselves: neither torch nor a simulator is imported for them.

So the command line knows every flag of a task, and answers a wrong one, without loading what trains it. Those of the
AllegroKuka family are in `allegro_kuka/settings.py`.
"""

from dataclasses import dataclass
from typing import ClassVar

from echelon.config import TaskConfig
from echelon.config.ranges import COUNT, NOT_NEGATIVE, POSITIVE, Range


@dataclass(frozen=True)
class MujocoTaskConfig(TaskConfig):
    """Settings that every MuJoCo task has."""

    episode_length: int = 250
    """Control steps after which an episode is truncated."""
    contacts: int | None = None
    """Contact buffer of a simulation on CUDA; found by a probe unless given, and then stored with the run."""
    constraints: int | None = None
    """Constraint rows in the buffer of a simulation on CUDA, likewise."""

    ranges: ClassVar[dict[str, Range]] = {"episode_length": COUNT, "contacts": COUNT, "constraints": COUNT}


@dataclass(frozen=True)
class CartpoleConfig(MujocoTaskConfig):
    """Settings of CartpoleSwingup."""

    episode_length: int = 200
    """Control steps of 0.05 s after which an episode is truncated."""
    velocities: bool = True
    """Observe the two velocities; without them a policy needs memory."""
    start_angle: float = 0.3
    """Largest angle from hanging straight down at the start, in radians."""
    start_position: float = 0.5
    """Largest distance of the cart from the centre at the start, in metres."""
    spin_cost: float = 0.01
    """Weight of the squared angular velocity (rad/s) by which the reward of a raised pole shrinks."""
    action_cost: float = 0.01
    """Weight of the squared action that is taken off the reward."""

    ranges = MujocoTaskConfig.ranges | {"start_angle": NOT_NEGATIVE, "start_position": NOT_NEGATIVE}


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
    start_noise: float = 0.05
    """Largest deviation of joint angles and velocities from standing at the start."""

    ranges = MujocoTaskConfig.ranges | {"start_noise": NOT_NEGATIVE}


@dataclass(frozen=True)
class DeceptiveReachConfig(TaskConfig):
    """Settings of DeceptiveReach. The arena is the square [-1, 1]²."""

    episode_length: int = 60
    """Steps after which an episode is truncated."""
    dense_reward: float = 0.1
    """Reward per step at the goal's centre; it falls linearly with the distance, to nothing at a distance of 2."""
    goal_bonus: float = 50.0
    """Reward on reaching the goal, which ends the episode."""
    wall_length: float = 1.1
    """Length of the wall across the straight way to the goal. Longer is harder."""
    start_spread: float = 0.1
    """Largest deviation of the start position from its centre, along x and y."""

    # The arena is 2 wide: the wall must leave a gap, and starts must lie inside.
    ranges = TaskConfig.ranges | {
        "episode_length": COUNT,
        "wall_length": Range(low=0, high=2, open_low=True, open_high=True),
        "start_spread": Range(low=0, high=0.4),
    }


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
    start_angle: float = 0.2
    """Largest deviation of a joint from zero at the start, in radians; joint limits are kept."""
    start_velocity: float = 0.1
    """Largest joint velocity at the start, in rad/s."""

    ranges = MujocoTaskConfig.ranges | {"start_angle": NOT_NEGATIVE, "start_velocity": NOT_NEGATIVE}


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
    world_frame_gravity: bool = False
    """Observe minus the base's z-axis in the world frame, as the paper's code does, not gravity as the base sees it."""


@dataclass(frozen=True)
class InHandConfig(MujocoTaskConfig):
    """Settings of the tasks with a cube in a hand."""

    episode_length: int = 599
    """Control steps after which an episode is truncated; the reference says 600, but takes 599."""
    success_angle: float = 0.1
    """The goal is reached within this angle, in radians."""
    success_bonus: float = 250.0
    """Reward for reaching a goal."""
    drop_distance: float = 0.24
    """The cube counts as dropped at this distance from the goal's position, in metres."""
    drop_reward: float = 0.0
    """Reward for dropping the cube."""
    distance_weight: float = -10.0
    """Weight of the cube's distance from the goal's position, in metres."""
    rotation_weight: float = 1.0
    """Weight of 1/(φ + `rotation_softening`), φ the cube's angle to the goal in radians."""
    rotation_softening: float = 0.1
    """Angle in radians that bounds the rotation term."""
    action_weight: float = -0.0002
    """Weight of the sum of squared actions."""
    start_spread: float = 0.01
    """Largest deviation of the cube's start position along each axis, in metres."""
    joint_spread: float = 0.2
    """Joints start at this share of an angle drawn from their range."""
    observe_torques: bool = True
    """Observe the servos' torques; False leaves zeros in their place, as the reference does for the Allegro hand."""

    ranges = MujocoTaskConfig.ranges | {
        "rotation_softening": POSITIVE,
        "start_spread": NOT_NEGATIVE,
        "joint_spread": NOT_NEGATIVE,
    }


@dataclass(frozen=True)
class ShadowHandConfig(InHandConfig):
    """Settings of ShadowHand."""


@dataclass(frozen=True)
class AllegroHandConfig(InHandConfig):
    """Settings of AllegroHand."""


CUBE_A, CUBE_B, GOAL_CUBE = 0.05, 0.07, 0.05
"""Edges of the Franka tasks' cubes, in metres: the one that is moved, the one to stack it on, the one that shows the
goal."""


def room_beside(edge: float) -> Range:
    """Allowed `start_spread` beside a cube of this edge, so that a position that does not touch it always exists."""
    return Range(low=0.5 * (CUBE_A + edge), open_low=True)


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
    start_yaw: float = 0.785
    """Largest turn of a cube about the vertical at the start, in radians."""
    joint_spread: float = 0.25
    """Largest deviation of a joint from the default pose at the start, in radians."""

    ranges = MujocoTaskConfig.ranges | {"start_yaw": NOT_NEGATIVE, "joint_spread": NOT_NEGATIVE}


@dataclass(frozen=True)
class FrankaCubePushConfig(FrankaCubeConfig):
    """Settings of FrankaCubePush."""

    align_reward: float = 2.0
    """Reward of a step with the cube at the goal; it falls with the distance."""
    success_reward: float = 4.0
    """Reward for reaching the goal, per step that is left."""
    success_distance: float = 0.005
    """The goal is reached within this horizontal distance, in metres."""
    end_cost: float = 5.0
    """Cost of an episode's end without success far from the goal; it falls with the distance."""

    ranges = FrankaCubeConfig.ranges | {"start_spread": room_beside(GOAL_CUBE)}


@dataclass(frozen=True)
class FrankaCubeStackConfig(FrankaCubeConfig):
    """Settings of FrankaCubeStack."""

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

    ranges = FrankaCubeConfig.ranges | {"start_spread": room_beside(CUBE_B)}

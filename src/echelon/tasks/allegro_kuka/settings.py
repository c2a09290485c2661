"""Settings of the four AllegroKuka tasks; the presets are the paper's."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from echelon.config import ModelConfig, TaskInfo
from echelon.config.ranges import COUNT, POSITIVE, SHARE
from echelon.errors import UserError
from echelon.tasks.settings import ARM_PBT, NUM_ENVS, PAPER, MujocoTaskConfig


@dataclass(frozen=True)
class AllegroKukaConfig(MujocoTaskConfig):
    """Settings of all AllegroKuka tasks; the defaults are those of AllegroKukaReorientation."""

    episode_length: int = 599
    """Control steps since the last success after which an episode is truncated; the reference's setting is one more."""
    contacts: int | None = 28
    """Contact buffer of a simulation on CUDA: twice the most contacts seen in hard grasps."""
    constraints: int | None = 112
    """Constraint rows in the buffer of a simulation on CUDA, chosen in the same way."""
    keypoints: Literal[1, 4] = 4
    """Points of the object that must match the goal's: its centre, or four that also fix its orientation."""
    success_steps: Annotated[int, COUNT] = 1
    """Steps near the goal, not necessarily in a row, that make a success."""
    max_successes: Annotated[int, COUNT] = 50
    """Number of successes that ends an episode."""
    replace_object: bool = False
    """Put the object back on the table after a success."""
    objects: Literal["all", "small"] = "all"
    """All 947 cuboids of 50 to 750 g, or the 654 of them up to 125 g."""
    relative_arm: bool = True
    """Actions change the arm's target angles; if False they are the targets, as they always are for the fingers."""
    tolerance: float = 0.075
    """Success tolerance at the start of training, in metres; keypoints must be within 1.5 times it."""
    target_tolerance: Annotated[float, POSITIVE] = 0.01
    """Smallest tolerance, in metres."""
    tolerance_shrink: float = 0.9
    """Factor of the tolerance at each change."""
    tolerance_interval: Annotated[int, COUNT] = 3000
    """Least control steps between two changes of the tolerance."""
    tolerance_successes: float = 3.0
    """Mean successes per episode at which the tolerance shrinks."""
    force_scale: float = 2.0
    """Deviation of the random forces on the object, in newtons per kilogram of the first environment's object."""
    fall_height: float = 0.1
    """The object has fallen when its centre is below this height, in metres."""
    hand_distance: float | None = 1.5
    """An episode ends when a fingertip is further from the object than this, in metres."""
    reach_weight: float = 50.0
    """Reward per metre by which a fingertip's best distance from the object improves."""
    reach_until_lifted: bool = True
    """Reward reaching only until the object is lifted."""
    lift_weight: float = 20.0
    """Reward per step and metre of height, until the object is lifted."""
    lift_bonus: float = 300.0
    """Reward for lifting the object, once."""
    keypoint_weight: float = 200.0
    """Reward per metre by which the keypoints' best distance from the goal improves, once the object was lifted."""
    goal_bonus: float = 1000.0
    """Reward for a success, split equally between its steps."""
    arm_speed_weight: float = -0.003
    """Weight of the sum of the arms' absolute joint velocities, in rad/s."""
    hand_speed_weight: float = -0.0003
    """Weight of the sum of the hands' absolute joint velocities, in rad/s."""
    gripped_starts: Annotated[float, SHARE] = 0.0
    """Share of training episodes that begin with the object in the hand; evaluations never begin so."""

    def check(self) -> None:
        if self.target_tolerance > self.tolerance:
            raise UserError(f"--env.target-tolerance {self.target_tolerance} is above --env.tolerance {self.tolerance}")


KUKA = replace(
    PAPER,
    env_steps=52_000 * NUM_ENVS * 16,
    model=ModelConfig(hidden=(768, 512, 256), lstm=768),
    update=replace(
        PAPER.update,
        mini_epochs=2,
        learning_rate=1e-4,
        clip=0.1,
        entropy_scale=0.005,
        reward_scale=0.01,
        timeout_bootstrap="none",  # as in the released configs: a time limit ends an episode as a failure does
    ),
    pbt=ARM_PBT,
)
REORIENTATION = replace(KUKA, task="AllegroKukaReorientation", env=AllegroKukaConfig())
REGRASPING = replace(
    KUKA,
    task="AllegroKukaRegrasping",
    env=AllegroKukaConfig(episode_length=399, keypoints=1, success_steps=30, replace_object=True, hand_distance=None),
    update=replace(KUKA.update, entropy_scale=0.0),
)
THROW = replace(
    KUKA,
    task="AllegroKukaThrow",
    env=AllegroKukaConfig(
        episode_length=299,
        contacts=56,  # more than twice the most seen with a hand at the bucket, where many walls overlap
        constraints=180,
        keypoints=1,
        success_steps=5,
        replace_object=True,
        objects="small",
        target_tolerance=0.075,
        force_scale=0.0,
        hand_distance=None,
    ),
    update=replace(KUKA.update, entropy_scale=0.0),
    pull=replace(KUKA.pull, temperature=0.1),
)
TWO_ARMS = replace(
    KUKA,
    task="AllegroKukaTwoArmsReorientation",
    env=AllegroKukaConfig(
        contacts=40,
        constraints=160,
        relative_arm=False,
        reach_until_lifted=False,
        hand_distance=None,
        arm_speed_weight=0.0,
        hand_speed_weight=0.0,
    ),
)
TASKS = (
    # Two seeds carry 7.1 and 4.8 objects an episode at 176 and 205 M steps, where CPO as published carries none.
    TaskInfo(
        "grasp cuboid after cuboid from a table with an Allegro hand on a KUKA arm", REGRASPING, best=("quiet_fingers",)
    ),
    TaskInfo("bring a cuboid to pose after pose with an Allegro hand on a KUKA arm", REORIENTATION),
    TaskInfo("throw cuboids into buckets with an Allegro hand on a KUKA arm", THROW),
    TaskInfo("bring a cuboid to poses on both sides of a table with two arms and hands", TWO_ARMS),
)

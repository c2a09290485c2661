"""AllegroKuka: an Allegro hand on a KUKA arm, or two of them, and a cuboid to bring to goal after goal.

| task | goal | after a success |
|---|---|---|
| `AllegroKukaRegrasping` | a point in the air, to be held for 30 steps | the object is back on the table |
| `AllegroKukaReorientation` | a pose in the air | the next pose, from where the object is |
| `AllegroKukaThrow` | a bucket out of reach | the object is back on the table, the bucket elsewhere |
| `AllegroKukaTwoArmsReorientation` | a pose on either arm's side | the next pose |

The common base class is in `task`, the reward in `reward`, the settings in `settings`.
"""

from dataclasses import replace

from echelon.tasks.allegro_kuka.scene import ONE_ARM, TWO_ARMS, Volume
from echelon.tasks.allegro_kuka.settings import (
    AllegroKukaRegraspingConfig,
    AllegroKukaReorientationConfig,
    AllegroKukaThrowConfig,
    AllegroKukaTwoArmsReorientationConfig,
)
from echelon.tasks.allegro_kuka.task import AllegroKuka

__all__ = [
    "AllegroKukaRegrasping",
    "AllegroKukaRegraspingConfig",
    "AllegroKukaReorientation",
    "AllegroKukaReorientationConfig",
    "AllegroKukaThrow",
    "AllegroKukaThrowConfig",
    "AllegroKukaTwoArmsReorientation",
    "AllegroKukaTwoArmsReorientationConfig",
]


class AllegroKukaRegrasping(AllegroKuka[AllegroKukaRegraspingConfig]):
    """Grasp, lift and hold at a point; then again from the table."""

    place = replace(ONE_ARM, marker="ball")


class AllegroKukaReorientation(AllegroKuka[AllegroKukaReorientationConfig]):
    """Grasp, lift and bring to a pose; then to the next one."""

    place = ONE_ARM


class AllegroKukaThrow(AllegroKuka[AllegroKukaThrowConfig]):
    """Grasp, lift and throw into a bucket; then into another."""

    place = replace(
        ONE_ARM,
        marker="bucket",
        goals=Volume((-0.2, -1.0, 0.0), (0.2, 0.7, 1.0), side=0.7),
        camera=((1.65, -1.3, 1.3), (0.25, 0.12, 0.55)),
    )


class AllegroKukaTwoArmsReorientation(AllegroKuka[AllegroKukaTwoArmsReorientationConfig]):
    """Bring to poses that one arm alone may not reach."""

    place = TWO_ARMS

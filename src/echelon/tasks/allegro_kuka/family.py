"""The four AllegroKuka tasks: each is its settings and its scene."""

from dataclasses import replace

from echelon.tasks.allegro_kuka.scene import ONE_ARM, TWO_ARMS, Volume
from echelon.tasks.allegro_kuka.settings import (
    AllegroKukaRegraspingConfig,
    AllegroKukaReorientationConfig,
    AllegroKukaThrowConfig,
    AllegroKukaTwoArmsReorientationConfig,
)
from echelon.tasks.allegro_kuka.task import AllegroKuka


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
        camera=((1.8, -1.45, 1.4), (0.2, 0.12, 0.62)),
    )


class AllegroKukaTwoArmsReorientation(AllegroKuka[AllegroKukaTwoArmsReorientationConfig]):
    """Bring to poses that one arm alone may not reach."""

    place = TWO_ARMS

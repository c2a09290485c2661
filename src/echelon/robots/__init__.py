"""Robots and scenes in MJCF, written for this package from spheres, capsules, boxes and planes."""

from pathlib import Path

import mujoco


def load(name: str) -> mujoco.MjModel:
    """The model in `<name>.xml` beside this file."""
    return mujoco.MjModel.from_xml_path(str(Path(__file__).parent / f"{name}.xml"))  # a path: scenes attach robots

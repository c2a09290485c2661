"""Robots and scenes in MJCF, written for this package from spheres, capsules, boxes and planes."""

from importlib import resources

import mujoco


def load(name: str) -> mujoco.MjModel:
    """The model in `<name>.xml` beside this file."""
    return mujoco.MjModel.from_xml_string((resources.files(__name__) / f"{name}.xml").read_text(encoding="utf-8"))

"""Robots and scenes of the built-in tasks, by the name of their MJCF file."""

from pathlib import Path

import mujoco

import echelon


def path(name: str) -> Path:
    """Where `name` lies, in whichever task's folder."""
    (found,) = (Path(echelon.__file__).parent / "tasks").glob(f"*/{name}.xml")
    return found


def load(name: str) -> mujoco.MjModel:
    """The model of this name."""
    return mujoco.MjModel.from_xml_path(str(path(name)))

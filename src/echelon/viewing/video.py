"""Films: recorded episodes drawn by MuJoCo's renderer, policies side by side, in a separate process.

OpenGL drivers can crash, and without a display several have to be tried. So this process only writes a job, and
`drawing.py` draws it in another.
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import mujoco
import numpy as np

from echelon.envs.contract import MakeEnv
from echelon.errors import UserError, install
from echelon.evaluation.trained import Trained
from echelon.runs.durable import writing
from echelon.runs.folder import RunFolder
from echelon.viewing import drawing
from echelon.viewing.recorder import SEED, Tape, record
from echelon.viewing.scene import followed, view_id

Format = Literal["mp4", "gif"]
PACKAGES = {"mp4": {"imageio_ffmpeg": "imageio-ffmpeg", "PIL": "pillow"}, "gif": {"PIL": "pillow"}}
"""Modules that each format needs, and the packages that contain them."""
BACKENDS = ("egl", "osmesa")
"""OpenGL without a display, on Linux: by a GPU's driver or Mesa, and by Mesa alone."""


def render(
    folder: RunFolder,
    out: Path | None = None,
    format: Format = "mp4",
    policies: str = "all",
    seed: int = SEED,
    checkpoint: Literal["newest", "best"] = "newest",
    make_env: MakeEnv | None = None,
) -> Path:
    """Film an episode of the chosen policies; returns the film's path, by default `RUN/replay/<policies>.<format>`."""
    require_packages(format)
    tapes = record(Trained.load(folder, checkpoint, make_env), policies, seed)
    out = out or folder.path / "replay" / f"{policies}.{format}"
    draw(tapes, out, format)
    return out


def require_packages(format: Format) -> None:
    """Raise a `UserError` if a package for this format is missing, before anything is recorded."""
    for module, package in PACKAGES[format].items():
        if find_spec(module) is None:
            other = "--format html" if format == "gif" else "--format gif or html"
            raise UserError(
                f"{format} films need the package {package}; install it with {install('video')}, or use {other}"
            )


def draw(tapes: tuple[Tape, ...], out: Path, format: Format) -> None:
    """Draw the tapes side by side into one file, which is complete or absent."""
    with writing(out, "choose another --out"):
        out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".film-", dir=out.parent) as place:
        job = _write_job(tapes, Path(place), format)
        for backend in _backends():
            done = _run(job, backend)
            if done.returncode == 0:
                os.replace(Path(place) / f"film.{format}", out)
                return
            if done.returncode > 0 and done.returncode != drawing.NO_OPENGL:
                last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
                raise UserError(f"the film could not be drawn: {last}")
    raise UserError(_no_opengl())


def _write_job(tapes: tuple[Tape, ...], place: Path, format: Format) -> Path:
    """Write the job: a model, its states and a label for each policy."""
    panels = []
    for tape in tapes:
        model = tape.model.__copy__()
        tape.appearance.put_into(model)
        mujoco.mj_saveModel(model, str(place / f"{tape.policy}.mjb"), None)
        np.savez(place / f"{tape.policy}.npz", qpos=tape.qpos, mocap=tape.mocap)
        end = "" if tape.outcome == "time limit" else f"{tape.outcome} after {tape.seconds:.1f} s"
        seen = {"camera": view_id(model), "follow": followed(model)}
        panels.append({"name": str(tape.policy), "label": tape.name, "end": end} | seen)
    job = place / "job.json"
    job.write_text(json.dumps({"format": format, "frame_s": tapes[0].frame_s, "panels": panels}))
    return job


def _backends() -> tuple[str | None, ...]:
    """Backends to try: `MUJOCO_GL` if set, else those that need no display, else the system's default."""
    chosen = os.environ.get("MUJOCO_GL")
    return (chosen,) if chosen else BACKENDS if sys.platform == "linux" else (None,)


def _run(job: Path, backend: str | None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"MUJOCO_GL": backend} if backend else {})
    command = [sys.executable, "-m", drawing.__name__, str(job)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _no_opengl() -> str:
    """The error message if no backend works."""
    chosen = os.environ.get("MUJOCO_GL")
    if chosen:
        return f"OpenGL by MUJOCO_GL={chosen} does not work here; unset it, or use --format html, which needs none"
    return (
        "this machine cannot draw without a display; install the system package libegl1 with a driver such as "
        "libgl1-mesa-dri, or libosmesa6, or use --format html, which needs none"
    )

"""Films: recorded episodes drawn by MuJoCo's renderer, policies side by side, in a separate process.

OpenGL drivers can crash, and without a display several have to be tried. So this process only writes a job, and
`drawing.py` draws it in another.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal

import mujoco
import numpy as np

from echelon.envs.contract import MakeEnv
from echelon.errors import UserError, is_installed
from echelon.runs.durable import writing
from echelon.runs.folder import RunFolder
from echelon.runs.replays import replay_path, write_replay
from echelon.runs.trained import Trained
from echelon.viewing import drawing
from echelon.viewing.page import write_page
from echelon.viewing.recorder import SEED, Tape, record, to_replay
from echelon.viewing.scene import camera, followed, free_view, view_id

Format = Literal["mp4", "gif"]
BACKENDS = ("egl", "osmesa")
"""OpenGL without a display, on Linux: by a GPU's driver or Mesa, and by Mesa alone."""


class film_every:
    """Record an episode of the leader each `every` iterations and at the end, into `films/` of the run: an MP4 where
    the video extra is installed, else a page in 3D. The report shows the last one."""

    def __init__(self, every: int, policy: str = "leader", seed: int = SEED) -> None:
        self.every, self.policy, self.seed = every, policy, seed

    def on_checkpoint(self, folder: RunFolder, make_env: MakeEnv | None) -> None:
        """Film the newest checkpoint."""
        trained = Trained.load(folder, "newest", make_env)
        tapes = record(trained, self.policy, self.seed)
        replay = to_replay(trained, self.seed, tapes)
        out = folder.path / "films" / f"iteration-{trained.iteration:06d}"
        if all(map(is_installed, drawing.MODULES["mp4"])):
            draw(tapes, out.with_suffix(".mp4"), "mp4")
        else:
            write_page(replay, out.with_suffix(".html"))
        with suppress(UserError):  # meshes that are too large for a page can be filmed
            write_replay(replay, replay_path(folder.path))


def draw(tapes: tuple[Tape, ...], out: Path, format: Format) -> None:
    """Draw the tapes side by side into one file, which is complete or absent."""
    with writing(out, "choose another --out"):
        out.parent.mkdir(parents=True, exist_ok=True)
    chosen = os.environ.get("MUJOCO_GL")
    backends = (chosen,) if chosen else BACKENDS if sys.platform == "linux" else ("",)  # "": the system's default
    with tempfile.TemporaryDirectory(prefix=".film-", dir=out.parent) as place:
        job = _write_job(tapes, Path(place), format)
        for backend in backends:
            done = _run(job, backend)
            if done.returncode == 0:
                os.replace(job.with_name(f"film.{format}"), out)
                return
            if done.returncode > 0 and done.returncode != drawing.NO_OPENGL:
                last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
                raise UserError(f"the film could not be drawn: {last}")
    advice = "install the system package libegl1 with a driver such as libgl1-mesa-dri, or libosmesa6"
    told = f"this machine cannot draw without a display; {advice}"
    told = f"OpenGL by MUJOCO_GL={chosen} does not work here; unset it" if chosen else told
    raise UserError(f"{told}, or use --format html, which needs none")


def _write_job(tapes: tuple[Tape, ...], place: Path, format: Format) -> Path:
    """Write the job: a model, its states and captions for each policy."""
    panels = []
    for k, tape in enumerate(tapes):
        mujoco.mj_saveModel(tape.model, str(place / f"{k}.mjb"), None)
        np.savez(place / f"{k}.npz", qpos=tape.qpos, mocap=tape.mocap)
        end = "" if tape.outcome == "time limit" else f", {tape.outcome} after {tape.seconds:.1f} s"
        captions = {"label": tape.name, "ended": tape.name + end}
        view = free_view(camera(tape.model, tape.qpos[0]))
        panels.append(captions | {"camera": view_id(tape.model), "view": view, "follow": followed(tape.model)})
    job = place / "job.json"
    job.write_text(json.dumps({"format": format, "frame_s": tapes[0].frame_s, "panels": panels}))
    return job


def _run(job: Path, backend: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"MUJOCO_GL": backend} if backend else {})
    command = [sys.executable, "-m", drawing.__name__, str(job)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

"""The process that draws a film: `python -m echelon.viewing.drawing JOB`, started by `video.py`.

It reads only the job's files, and writes `film.<format>` beside them.
"""

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

NO_OPENGL = 3
"""Exit status where OpenGL does not start."""
PANEL_PIXELS = {"mp4": ((720, 480), (480, 320)), "gif": ((480, 320), (320, 208))}
"""Width and height of a single panel, and of one of several; multiples of 16, which video encoders prefer."""
GIF_COLOURS = 128
SHADOW_PIXELS = 1024
"""Side of the shadow map. The models' 4096 take half of the time when a CPU draws."""
INK, PAPER = (255, 255, 255), (20, 23, 28)


@dataclass
class Panel:
    """The picture of one policy."""

    renderer: Any
    model: Any
    data: Any
    about: dict[str, Any]
    """`camera`, the body to `follow`, `label` and `end`."""
    qpos: np.ndarray
    mocap: np.ndarray

    @cached_property
    def last(self) -> np.ndarray:
        """Picture of the last frame."""
        return self._draw(len(self.qpos) - 1)

    def draw(self, frame: int) -> np.ndarray:
        """Picture of a frame, `[height, width, 3]`; after the end, of the last frame."""
        return self._draw(frame) if frame < len(self.qpos) else self.last

    def _draw(self, frame: int) -> np.ndarray:
        import mujoco

        self.data.qpos[:] = self.qpos[frame]
        self.data.mocap_pos[:] = self.mocap[frame, :, :3]
        self.data.mocap_quat[:] = self.mocap[frame, :, 3:]
        mujoco.mj_forward(self.model, self.data)
        follow = self.about["follow"]
        if follow is not None:  # the light moves along, because shadows reach only a limited distance from it
            self.data.light_xpos[:, :2] += self.data.xpos[follow, :2]
        self.renderer.update_scene(self.data, self.about["camera"])
        return self.renderer.render()

    def caption(self, frame: int) -> str:
        """The policy's label, and after the end how the episode ended."""
        label, end = self.about["label"], self.about["end"]
        return f"{label}, {end}" if end and frame >= len(self.qpos) else label


def main() -> int:
    """Draw the job named on the command line."""
    path = Path(sys.argv[1])
    job = json.loads(path.read_text())
    try:
        panels = _panels(job, path.parent)
        panels[0].draw(0)
    except Exception as error:  # each OpenGL binding has its own error for a missing library
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return NO_OPENGL
    film = path.parent / f"film.{job['format']}"
    frames = _frames(panels)
    if job["format"] == "gif":
        _write_gif(film, frames, job["frame_s"])
    else:
        _write_mp4(film, frames, job["frame_s"])
    return 0


def _panels(job: dict[str, Any], place: Path) -> list[Panel]:
    """A panel per policy, with its model, states and renderer."""
    import mujoco

    width, height = PANEL_PIXELS[job["format"]][len(job["panels"]) > 1]
    panels = []
    for panel in job["panels"]:
        model = mujoco.MjModel.from_binary_path(str(place / f"{panel['name']}.mjb"))
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        model.vis.quality.shadowsize = SHADOW_PIXELS
        model.vis.quality.offsamples = 2 if len(job["panels"]) > 1 else 4
        states = np.load(place / f"{panel['name']}.npz")
        renderer = mujoco.Renderer(model, height=height, width=width)
        panels.append(Panel(renderer, model, mujoco.MjData(model), panel, states["qpos"], states["mocap"]))
    return panels


def _frames(panels: list[Panel]) -> "Iterator[Image]":
    """The frames of the film: panels in a grid, each with its caption."""
    from PIL import Image, ImageDraw, ImageFont

    columns = math.ceil(math.sqrt(len(panels)))
    width, height = panels[0].renderer.width, panels[0].renderer.height
    size = columns * width, math.ceil(len(panels) / columns) * height
    font = ImageFont.load_default(size=round(height / 20))
    for frame in range(max(len(panel.qpos) for panel in panels)):
        picture = Image.new("RGB", size, PAPER)
        pen = ImageDraw.Draw(picture)
        for place, panel in enumerate(panels):
            corner = place % columns * width, place // columns * height
            picture.paste(Image.fromarray(panel.draw(frame)), corner)
            where = corner[0] + height // 40, corner[1] + height // 40
            box = pen.textbbox(where, panel.caption(frame), font=font)
            pen.rectangle((box[0] - 5, box[1] - 4, box[2] + 5, box[3] + 4), fill=PAPER)
            pen.text(where, panel.caption(frame), fill=INK, font=font)
        yield picture


def _write_mp4(film: Path, frames: "Iterator[Image]", frame_s: float) -> None:
    """Write H.264, which every browser and player supports."""
    import imageio_ffmpeg

    first = next(frames)
    encoder = imageio_ffmpeg.write_frames(str(film), first.size, fps=1 / frame_s, quality=7, macro_block_size=2)
    encoder.send(None)
    encoder.send(first.tobytes())
    for frame in frames:
        encoder.send(frame.tobytes())
    encoder.close()


def _write_gif(film: Path, frames: "Iterator[Image]", frame_s: float) -> None:
    """Write an endless loop. GIF stores durations in hundredths of a second."""
    from PIL.Image import Dither

    first, *rest = (frame.quantize(GIF_COLOURS, dither=Dither.NONE) for frame in frames)
    first.save(film, save_all=True, append_images=rest, duration=round(100 * frame_s) * 10, loop=0, optimize=False)


if __name__ == "__main__":
    sys.exit(main())

"""The process that draws a film: `python -m echelon.viewing.drawing JOB`, started by `video.py`. It reads only the
job's files, and writes `film.<format>` beside them."""

import json
import math
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

MODULES = {"mp4": ("imageio_ffmpeg", "PIL"), "gif": ("PIL",)}
"""What each format needs, from the extra `video`."""
NO_OPENGL = 3
"""Exit status where OpenGL does not start."""
PANEL_PIXELS = {"mp4": ((720, 480), (480, 320)), "gif": ((480, 320), (320, 208))}
"""Width and height of a single panel, and of one of several; multiples of 16, which video encoders prefer."""
GIF_COLOURS = 128
SHADOW_PIXELS = 1024
"""Side of the shadow map. The models' 4096 take half of the time when a CPU draws."""
INK, PAPER = (255, 255, 255), (20, 23, 28)
SKY = (0.81, 0.86, 0.92)
"""Colour behind a model that has no sky of its own, such as a robot's file without a scene; MuJoCo's is black."""


class Panel:
    """The picture of one policy."""

    def __init__(self, path: Path, about: dict[str, Any], size: tuple[int, int], samples: int) -> None:
        """`about` has the `camera`, where it is negative the free camera's `view`, the body to `follow`, and the
        captions `label` and, after the end, `ended`."""
        import mujoco

        self.about, (self.width, self.height) = about, size
        self.model = mujoco.MjModel.from_binary_path(f"{path}.mjb")
        self.model.vis.global_.offwidth, self.model.vis.global_.offheight = size
        self.model.vis.quality.shadowsize, self.model.vis.quality.offsamples = SHADOW_PIXELS, samples
        states = np.load(f"{path}.npz")
        self.qpos, self.mocap = states["qpos"], states["mocap"]
        self.data = mujoco.MjData(self.model)
        self.camera = about["camera"]
        if self.camera < 0:
            self.camera = mujoco.MjvCamera()
            for name, value in about["view"].items():
                setattr(self.camera, name, value)
            if about["follow"] is not None:
                self.camera.type, self.camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, about["follow"]
        self.renderer = mujoco.Renderer(self.model, height=self.height, width=self.width)
        self.has_sky = int(mujoco.mjtTexture.mjTEXTURE_SKYBOX) in self.model.tex_type
        self.draw(0)  # fails here if OpenGL does not work

    def draw(self, frame: int) -> tuple[np.ndarray, str]:
        """Picture `[height, width, 3]` and caption of a frame; after the end, the picture stays the last."""
        import mujoco

        if frame >= len(self.qpos):
            return self.picture, self.about["ended"]
        self.data.qpos[:] = self.qpos[frame]
        self.data.mocap_pos[:], self.data.mocap_quat[:] = np.split(self.mocap[frame], [3], axis=1)
        mujoco.mj_forward(self.model, self.data)
        follow = self.about["follow"]
        if follow is not None:  # the light moves along, because shadows reach only a limited distance from it
            self.data.light_xpos[:, :2] += self.data.xpos[follow, :2]
        self.renderer.update_scene(self.data, self.camera)
        if not self.has_sky:
            _hang_sky(self.renderer.scene)
        self.picture = self.renderer.render()
        return self.picture, self.about["label"]


def _hang_sky(scene: Any) -> None:
    """Put a bright wall across the view, as far away as the camera sees."""
    import mujoco

    eye, wall = scene.camera[0], scene.geoms[scene.ngeom]
    forward, up = np.array(eye.forward), np.array(eye.up)
    far = 0.99 * float(eye.frustum_far)
    turn = np.column_stack((np.cross(forward, up), up, -forward))
    size, dim = np.array((10 * far, 10 * far, 0.001 * far)), 0.01  # it shines by itself: lights add next to nothing
    rgba = np.array((*(dim * x for x in SKY), 1.0), np.float32)
    mujoco.mjv_initGeom(wall, mujoco.mjtGeom.mjGEOM_BOX, size, eye.pos + far * forward, turn.ravel(), rgba)
    wall.emission, wall.specular, wall.category = 1 / dim, 0.0, mujoco.mjtCatBit.mjCAT_DECOR
    scene.ngeom += 1


def main() -> int:
    """Draw the job named on the command line."""
    path = Path(sys.argv[1])
    job = json.loads(path.read_text())
    several = len(job["panels"]) > 1
    try:
        size, samples = PANEL_PIXELS[job["format"]][several], 2 if several else 4
        panels = [Panel(path.parent / str(k), about, size, samples) for k, about in enumerate(job["panels"])]
    except Exception as error:  # each OpenGL binding has its own error for a missing library
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return NO_OPENGL
    write = _write_gif if job["format"] == "gif" else _write_mp4
    write(path.parent / f"film.{job['format']}", _frames(panels), job["frame_s"])
    return 0


def _frames(panels: list[Panel]) -> Iterator[Any]:
    """The frames of the film: panels in a grid, each with its caption."""
    from PIL import Image, ImageDraw, ImageFont

    columns = math.ceil(math.sqrt(len(panels)))
    width, height = panels[0].width, panels[0].height
    font = ImageFont.load_default(size=round(height / 20))
    for frame in range(max(len(panel.qpos) for panel in panels)):
        film = Image.new("RGB", (columns * width, math.ceil(len(panels) / columns) * height), PAPER)
        pen = ImageDraw.Draw(film)
        for place, panel in enumerate(panels):
            left, top = place % columns * width, place // columns * height
            picture, caption = panel.draw(frame)
            film.paste(Image.fromarray(picture), (left, top))
            where = left + height // 40, top + height // 40
            box = pen.textbbox(where, caption, font=font)
            pen.rectangle((box[0] - 5, box[1] - 4, box[2] + 5, box[3] + 4), fill=PAPER)
            pen.text(where, caption, fill=INK, font=font)
        yield film


def _write_mp4(film: Path, frames: Iterator[Any], frame_s: float) -> None:
    """Write H.264, which every browser and player supports."""
    import imageio_ffmpeg

    first = next(frames)
    encoder = imageio_ffmpeg.write_frames(str(film), first.size, fps=1 / frame_s, quality=7, macro_block_size=2)
    encoder.send(None)
    for frame in chain([first], frames):
        encoder.send(frame.tobytes())
    encoder.close()


def _write_gif(film: Path, frames: Iterator[Any], frame_s: float) -> None:
    """Write an endless loop. GIF stores durations in hundredths of a second."""
    from PIL.Image import Dither

    first, *rest = (frame.quantize(GIF_COLOURS, dither=Dither.NONE) for frame in frames)
    first.save(film, save_all=True, append_images=rest, duration=round(100 * frame_s) * 10, loop=0, optimize=False)


if __name__ == "__main__":
    sys.exit(main())

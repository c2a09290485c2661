"""Write `docs/images/replay-beside-mujoco.png`: frames of runs, drawn by MuJoCo (left) and by the replay (right).

    python docs/draw_replay.py RUN:FRAME [RUN:FRAME ...]

Both look through the same camera, so what differs is light and ground. Needs Chromium.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from browser import Browser, find_chromium
from PIL import Image

from echelon.runs.folder import RunFolder
from echelon.runs.trained import Trained
from echelon.viewing.page import write_page
from echelon.viewing.recorder import record, to_replay
from echelon.viewing.scene import view_id

OUT = Path(__file__).parent / "images" / "replay-beside-mujoco.png"
WIDTH, HEIGHT = 560, 400


def draw_mujoco(run: str, frame: int, out: Path) -> None:
    """In a process of its own, as OpenGL without a display has to be chosen before MuJoCo is imported."""
    import mujoco

    (tape,) = record(Trained.load(RunFolder.open(run)), "leader")
    data = mujoco.MjData(tape.model)
    data.qpos[:] = tape.qpos[frame]
    data.mocap_pos[:], data.mocap_quat[:] = tape.mocap[frame, :, :3], tape.mocap[frame, :, 3:]
    mujoco.mj_forward(tape.model, data)
    with mujoco.Renderer(tape.model, height=HEIGHT, width=WIDTH) as renderer:
        renderer.update_scene(data, view_id(tape.model))
        Image.fromarray(renderer.render()).save(out)


def draw_replay(browser: Browser, run: str, frame: int, place: Path) -> Image.Image:
    """The same frame in the browser, without the panel."""
    trained = Trained.load(RunFolder.open(run))
    write_page(to_replay(trained, 0, record(trained, "leader")), place / "page.html")
    with browser.page(place / "page.html", WIDTH, HEIGHT) as page:
        page.wait_for("window.handle")
        page.evaluate("document.querySelectorAll('.er-bar, .er-caption').forEach((part) => part.remove())")
        page.evaluate(f"handle.seek({frame})")
        time.sleep(2)
        return Image.open(page.screenshot(place / "page.png")).convert("RGB")


def main() -> None:
    if sys.argv[1] == "--mujoco":
        draw_mujoco(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
        return
    shown = [argument.rsplit(":", 1) for argument in sys.argv[1:]]
    picture = Image.new("RGB", (2 * WIDTH, len(shown) * HEIGHT))
    executable = find_chromium()
    assert executable, "no Chromium here"
    browser = Browser(executable)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for row, (run, frame) in enumerate(shown):
            command = [sys.executable, __file__, "--mujoco", run, frame, str(place / "mujoco.png")]
            subprocess.run(command, env={"MUJOCO_GL": "egl"} | os.environ, check=True)
            picture.paste(Image.open(place / "mujoco.png"), (0, row * HEIGHT))
            picture.paste(draw_replay(browser, run, int(frame), place), (WIDTH, row * HEIGHT))
    browser.close()
    picture.quantize(192).save(OUT, optimize=True)


if __name__ == "__main__":
    main()

"""Write `docs/images/<task>.png`, a still of every MuJoCo task.

    python docs/render_tasks.py [TASK ...]

Every picture is drawn in a process of its own: a broken OpenGL driver ends that process and not this one.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

IMAGES = Path(__file__).parent / "images"


@dataclass(frozen=True)
class Still:
    """A pose of a robot that shows what its task is about."""

    robot: str
    qpos: tuple[float, ...]
    camera: str = "side"


SHADOW_FINGER = (0.0, 0.5, 0.35, 0.26)
SHADOW_CUBE = (-0.01, -0.364, 0.52, 0.904, 0.02, -0.038, 0.425)
# Root position and orientation, then the joints.
HUMANOID_RUNNING = (
    *(0.0, 0.0, 1.3, 0.998, 0.0, 0.06, 0.0),
    *(0.1, -0.1, 0.0),  # waist
    *(-0.05, 0.0, -1.05, -1.3, 0.1, 0.0),  # right leg
    *(-0.05, 0.0, 0.3, -0.45, 0.35, 0.0),  # left leg
    *(0.6, -0.8, -0.3, 0.0, 0.1, 0.2),  # arms
)
ANYMAL_TROTTING = (
    *(0.0, 0.0, 0.52, 1.0, 0.0, 0.0, 0.0),
    *(0.03, 0.6, -1.35),
    *(0.03, -0.5, 0.95),
    *(-0.03, 0.35, -0.9),
    *(-0.03, -0.2, 1.2),
)

ALLEGRO_CUBE = (-0.016, -0.151, 0.548, 0.959, -0.169, 0.048, 0.224)
ALLEGRO_HAND = (0.05, 0.4, 0.6, 0.45, 0.0, 0.343, 0.6, 0.45, -0.05, 0.4, 0.6, 0.45, 1.1, 0.6, 0.35, 0.6)
# The cubes, the arm's joints, the fingers.
FRANKA_PUSHING = (
    *(0.05, 0.0, 1.05, 0.995, 0.0, 0.0, 0.0998),
    *(-0.0671, 0.7747, -0.0229, -2.2266, 0.114, 3.0003, 0.5891, 0.0, 0.0),
)
FRANKA_STACKING = (
    *(0.0986, 0.1197, 1.1886, 0.9801, -0.0003, 0.0039, 0.1986),
    *(0.1, 0.12, 1.06, 0.9888, 0.0, 0.0, -0.1494),
    *(0.0207, 0.485, 0.1823, -2.165, -0.1743, 2.6312, 0.7209, 0.0249, 0.0249),
)
STILLS = {
    "AllegroHand": Still("allegro_cube", (*ALLEGRO_CUBE, *ALLEGRO_HAND)),
    "CartpoleSwingup": Still("cartpole", (-0.35, 0.5)),
    "Hopper": Still("hopper", (0.0, 0.08, 0.12, -0.75, 1.15, -0.3)),
    # Wrist, three fingers, little finger, thumb; the cube.
    "ShadowHand": Still(
        "shadow_hand", (0.0, -0.11, *SHADOW_FINGER * 3, 0.15, *SHADOW_FINGER, 0.3, 0.5, 0.0, 0.1, -0.3, *SHADOW_CUBE)
    ),
    "FrankaCubePush": Still("franka_push", FRANKA_PUSHING),
    "FrankaCubeStack": Still("franka_stack", FRANKA_STACKING),
    "Humanoid": Still("humanoid", HUMANOID_RUNNING),
    "Anymal": Still("anymal", ANYMAL_TROTTING),
}


def draw(task: str) -> None:
    """Render the task's still in this process."""
    import matplotlib.image
    import mujoco

    from echelon import robots

    still = STILLS[task]
    model = robots.load(still.robot)
    data = mujoco.MjData(model)
    data.qpos[:] = still.qpos
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, height=320, width=480) as renderer:
        renderer.update_scene(data, still.camera)
        matplotlib.image.imsave(IMAGES / f"{task}.png", renderer.render())


def main() -> None:
    if sys.argv[1:2] == ["--draw"]:
        draw(sys.argv[2])
        return
    IMAGES.mkdir(exist_ok=True)
    environment = {"MUJOCO_GL": "egl"} | os.environ
    for task in sys.argv[1:] or STILLS:
        done = subprocess.run([sys.executable, __file__, "--draw", task], env=environment, check=False)
        print(f"{task}: {'drawn' if done.returncode == 0 else f'failed with exit status {done.returncode}'}")


if __name__ == "__main__":
    main()

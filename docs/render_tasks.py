"""Write `docs/images/<task>.png`, a still of every MuJoCo task.

    python docs/render_tasks.py [TASK ...]

Every picture is drawn in a process of its own: a broken OpenGL driver ends that process and not this one.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parent / "images"


@dataclass(frozen=True)
class Still:
    """A pose of a robot that shows what its task is about."""

    robot: str
    qpos: tuple[float, ...]
    camera: str = "side"

    def model(self) -> Any:
        import mujoco

        (path,) = (Path(__file__).parents[1] / "src/echelon/tasks").glob(f"*/{self.robot}.xml")
        return mujoco.MjModel.from_xml_path(str(path))


@dataclass(frozen=True)
class KukaStill(Still):
    """A pose of an AllegroKuka task, which `robot` names; its hands are changed in Python."""

    scales: tuple[float, ...] = ()
    """Edges of the object in units of 5 cm."""
    goal: tuple[float, ...] = ()
    """Position and quaternion of what shows the goal."""

    def model(self) -> Any:
        from echelon import tasks
        from echelon.tasks.allegro_kuka import scene

        model = scene.build(tasks.info(self.robot).task.scene)
        for name in ("object", "goal") if "Reorientation" in self.robot else ("object",):
            model.geom(name).size = [0.025 * scale for scale in self.scales]
        model.body("goal").pos, model.body("goal").quat = self.goal[:3], self.goal[3:]
        return model


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
# The object's pose, the arm, the hand. Grasps that were seen to hold.
KUKA_BOX = (
    *(0.073, 0.076, 0.745, 0.086, -0.166, -0.982, -0.022),
    *(-1.55, 0.744, -0.035, 0.159, -0.002, 1.155, 2.392),
    *(-0.005, 0.713, 0.909, 0.21, 0.0, 0.812, 0.962, 0.213, 0.0, 0.816, 0.964, 0.214, 1.248, 0.156, -0.28, 0.747),
)
KUKA_STICK = (
    *(0.066, 0.002, 0.763, 0.706, -0.244, -0.016, 0.665),
    *(-1.528, 0.788, 0.004, 0.065, -0.079, 1.152, 2.46),
    *(0.212, 1.438, 1.131, 0.268, -0.095, 1.443, 1.135, 0.269, 0.001, 1.44, 1.132, 0.268, 1.44, 0.396, 0.583, 0.794),
)
KUKA_OPEN = (0.0, 0.5, 0.5, 0.4) * 3 + (1.2, 0.3, 0.3, 0.4)
KUKA_PAIR = (
    *(-0.33, 0.0, 0.5925, 1.0, 0.0, 0.0, 0.0),
    *(-1.571, 1.671, 0.0, 1.5, 0.0, 1.685, 2.358, *KUKA_OPEN),
    *(-1.571, 1.571, 0.0, 1.6, 0.0, 1.485, 2.358, *KUKA_OPEN),
)
TURNED = (0.8, 0.4, 0.3, 0.3)
STILLS = {
    "AllegroKukaRegrasping": KukaStill(
        "AllegroKukaRegrasping", KUKA_STICK, scales=(0.66, 0.75, 3.0), goal=(-0.1, -0.05, 0.95, 1.0, 0.0, 0.0, 0.0)
    ),
    "AllegroKukaReorientation": KukaStill(
        "AllegroKukaReorientation", KUKA_BOX, scales=(2.5, 1.5, 2.5), goal=(-0.1, -0.15, 0.98, *TURNED)
    ),
    "AllegroKukaThrow": KukaStill(
        "AllegroKukaThrow", KUKA_STICK, scales=(0.66, 0.75, 3.0), goal=(0.62, -0.35, 0.45, 1.0, 0.0, 0.0, 0.0)
    ),
    "AllegroKukaTwoArmsReorientation": KukaStill(
        "AllegroKukaTwoArmsReorientation", KUKA_PAIR, scales=(1.5, 1.5, 2.5), goal=(0.55, -0.25, 0.95, *TURNED)
    ),
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

    still = STILLS[task]
    model = still.model()
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

"""A robot as Menagerie has them, made here: meshes with materials, collision shapes apart, servos in radians and from 0
to 255, on a height field, with a goal to crawl to."""

import mujoco
import numpy as np
import torch
from torch import Tensor

from echelon.config import ModelConfig, TrainConfig, UpdateConfig
from echelon.envs.contract import Groups
from echelon.tasks.mujoco_task import MujocoTask, StartState
from echelon.tasks.settings import MujocoTaskConfig

ROWS, COLUMNS, SIZE = 12, 16, (2.0, 1.5, 0.3, 0.1)
"""Of the height field."""


VERTICES = np.array([(0.2, 0.0, 0.0), (-0.1, 0.08, 0.15), (-0.12, -0.1, 0.05), (0.0, 0.03, -0.18)])
FACES = np.array([(0, 1, 2), (0, 3, 1), (0, 2, 3), (1, 3, 2)])
"""Of a wheel, which is rather a caltrop."""


def heights() -> np.ndarray:
    """`[ROWS, COLUMNS]` from 0 to 1; higher at large x, and at the last row."""
    x, y = np.meshgrid(np.linspace(0, 1, COLUMNS), np.linspace(0, 1, ROWS))
    bumps = 0.5 + 0.5 * np.sin(9 * x) * np.cos(7 * y)
    return (0.6 * bumps + 0.4 * x) * (y < 1) + (y == 1)


def build() -> mujoco.MjModel:
    """The scene."""
    spec = mujoco.MjSpec()
    spec.add_mesh(name="wheel", uservert=VERTICES.ravel(), userface=FACES.ravel())
    spec.add_hfield(name="ground", nrow=ROWS, ncol=COLUMNS, size=SIZE, userdata=heights().ravel())
    spec.add_material(name="orange", rgba=(0.95, 0.45, 0.1, 1.0))
    checks = mujoco.mjtBuiltin.mjBUILTIN_CHECKER
    spec.add_texture(
        name="checks", type=mujoco.mjtTexture.mjTEXTURE_2D, builtin=checks, rgb1=(0.2, 0.4, 0.2), rgb2=(0.4, 0.6, 0.4),
        width=64, height=64, nchannel=3,
    )  # fmt: skip
    spec.add_material(name="grass", textures=["", "checks"])
    world = spec.worldbody
    world.add_light(pos=(0, 0, 4))
    world.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="ground", material="grass")
    target = world.add_body(name="goal", pos=(1.2, 0.2, 0.75))
    target.add_geom(
        type=mujoco.mjtGeom.mjGEOM_SPHERE, size=(0.12, 0, 0), rgba=(0.1, 0.8, 0.2, 1), contype=0, conaffinity=0
    )
    body = world.add_body(name="trunk", pos=(-0.6, 0, 0.7))
    body.add_freejoint()
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=(0.2, 0.1, 0.04), rgba=(0.2, 0.3, 0.8, 1))
    for name, x, y in (("fl", 0.18, 0.14), ("fr", 0.18, -0.14), ("bl", -0.18, 0.14), ("br", -0.18, -0.14)):
        wheel = body.add_body(name=name, pos=(x, y, 0))
        wheel.add_joint(name=name, axis=(0, 1, 0), damping=0.2)
        wheel.add_geom(
            type=mujoco.mjtGeom.mjGEOM_MESH, meshname="wheel", material="orange", group=2, contype=0, conaffinity=0
        )
        wheel.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=(0.1, 0, 0), group=3, mass=0.2)
        servo = spec.add_actuator(
            name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT, ctrlrange=(0, 255) if y > 0 else (-3, 3)
        )
        servo.ctrllimited, servo.gear[0] = True, 0.01 if y > 0 else 1.0
    return spec.compile()


class Crawler(MujocoTask[MujocoTaskConfig]):
    """Crawls towards the goal."""

    substeps = 10
    preset = TrainConfig(
        env=MujocoTaskConfig(episode_length=30),
        algo="ppo",
        num_envs=8,
        model=ModelConfig(hidden=(8,)),
        update=UpdateConfig(horizon=8, mini_epochs=1),
    )

    def model(self) -> mujoco.MjModel:
        return build()

    def observe(self) -> Groups:
        return {"policy": torch.cat((self.engine.qpos, self.engine.qvel), dim=1).float()}

    def reward(self, action: Tensor) -> Tensor:
        return self.engine.qvel[:, 0].float()

    def start_state(self) -> StartState:
        rest = self.constant(self.engine.model.qpos0).expand(self.num_envs, -1)
        return StartState(rest, self.uniform(-0.1, 0.1, self.engine.model.nv))

"""DeceptiveReach seen from above: the arena as a MuJoCo scene, for a task that needs no simulator to run."""

import mujoco
import numpy as np

from echelon.tasks.deceptive_reach import DeceptiveReach

HEIGHT = 0.04
"""Of the wall and the point, which have none in the task."""


def arena(env: DeceptiveReach) -> mujoco.MjModel:
    """Floor, wall, goal and the point, whose two joints are its position."""
    wall = env.wall
    middle = (wall.left + wall.right) / 2, (wall.bottom + wall.top) / 2
    half = (wall.right - wall.left) / 2, (wall.top - wall.bottom) / 2
    return mujoco.MjModel.from_xml_string(f"""
        <mujoco>
          <statistic center="0 0 0" extent="1.6"/>
          <worldbody>
            <camera name="side" pos="0 0 3.4" fovy="38"/>
            <geom type="plane" size="0 0 1" pos="0 0 {-HEIGHT}"/>
            <geom type="box" size="1 1 0.002" pos="0 0 {-HEIGHT / 2}" rgba="0.86 0.87 0.9 1"/>
            <geom name="wall" type="box" size="{half[0]} {half[1]} {HEIGHT}" pos="{middle[0]} {middle[1]} 0"
                  rgba="0.35 0.38 0.45 1"/>
            <body name="goal" pos="{env.goal[0]} {env.goal[1]} 0">
              <geom type="cylinder" size="{env.goal_radius} 0.004" rgba="0.1 0.6 0.35 1"/>
            </body>
            <body name="point">
              <joint type="slide" axis="1 0 0"/>
              <joint type="slide" axis="0 1 0"/>
              <geom type="sphere" size="{HEIGHT}" rgba="0.88 0.18 0 1"/>
            </body>
          </worldbody>
        </mujoco>""")


def poses(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """`[frames, bodies, 7]` from positions `[frames, 2]`."""
    data, found = mujoco.MjData(model), []
    for place in qpos:
        data.qpos[:] = place
        mujoco.mj_kinematics(model, data)
        found.append(np.concatenate((data.xpos, data.xquat), axis=1))
    return np.stack(found)

"""ShadowHand: what it does not share with the other hand."""

import mujoco
import numpy as np
import torch
from tasks.in_hand_states import SHADOW

TIPS = ("ffdistal", "mfdistal", "rfdistal", "lfdistal", "thdistal")


def test_fingertips_are_the_poses_and_velocities_of_the_last_links() -> None:
    env = SHADOW.begun(1)
    env.step(torch.full((1, 20), 0.4))
    obs = env.observe()["policy"][0, 96:161].reshape(5, 13).double().numpy()
    model = env.engine.model
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = env.engine.qpos[0].numpy(), env.engine.qvel[0].numpy()
    mujoco.mj_forward(model, data)
    for row, tip in zip(obs, TIPS, strict=True):
        body = model.body(tip).id
        velocity = np.zeros(6)  # angular, linear
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, velocity, 0)
        w, x, y, z = data.xquat[body]
        expected = np.concatenate((data.xpos[body], (x, y, z, w), velocity[3:], velocity[:3]))
        np.testing.assert_allclose(row, expected.clip(-5, 5), atol=1e-4)


def test_fingertip_wrenches_are_the_sensors_times_ten() -> None:
    env = SHADOW.begun(2)
    for _ in range(10):
        step = env.step(torch.full((2, 20), 0.4))
    assert not step.terminated.any()
    sensors = env.engine.sensordata.float()
    for place, tip in enumerate(TIPS):
        force, torque = (env.engine.model.sensor(f"{tip}_{kind}").adr[0] for kind in ("force", "torque"))
        read = torch.cat((sensors[:, force : force + 3], sensors[:, torque : torque + 3]), dim=1)
        shown = env.observe()["policy"][:, 161 + 6 * place : 167 + 6 * place]
        torch.testing.assert_close(shown, (10 * read).clamp(-5, 5))
    assert step.obs["policy"][:, 161:191].any()

"""The plain loop of the example sees and does what the task does, step by step."""

import runpy
from pathlib import Path

import numpy as np
import scenes
import torch

from echelon import make

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "deploy" / "allegro_hand.py"))


def test_the_plain_loop_is_the_task() -> None:
    """From the same states, with the same goals and actions: observations, successes and falls are the same. A goal
    counts as reached within 1.5 rad here, so that some are. States are set equal after every step: contacts make far
    more of the task's rounding to float32 in a second."""
    env = make("AllegroHand", 1, "cpu", seed=3, success_angle=1.5, episode_length=60)
    hand = EXAMPLE["Hand"](scenes.load("allegro_cube"))
    hand.step.__globals__["SUCCESS_ANGLE"] = 1.5
    random, reached, ended = np.random.default_rng(0), 0, 0

    def begin() -> None:
        hand.reset()
        hand.data.qpos[:] = env.engine.qpos[0].numpy()
        hand.data.ctrl[:] = env.engine.ctrl[0].numpy()
        hand.goal = env.kept["goal"][0].numpy().astype(float)

    expected = env.reset()["policy"][0].numpy()
    begin()
    for step in range(150):
        np.testing.assert_allclose(hand.observe(), expected, atol=2e-4, err_msg=f"at step {step}")
        hand.data.qpos[:], hand.data.qvel[:] = env.engine.qpos[0].numpy(), env.engine.qvel[0].numpy()
        action = random.uniform(-1.2, 1.2, env.action_dim).astype(np.float32)
        success, fell = hand.step(action)
        found = env.step(torch.from_numpy(action)[None])
        assert success == bool(found.log["reward/success"][0] > 0)
        assert fell == bool(found.terminated[0])
        reached, ended = reached + success, ended + int(found.terminated[0] | found.truncated[0])
        if found.terminated[0] or found.truncated[0]:
            begin()
        elif success:
            hand.goal = env.kept["goal"][0].numpy().astype(float)
        expected = found.obs["policy"][0].numpy()
    assert reached > 0
    assert ended > 1

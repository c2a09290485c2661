"""mjlab, MuJoCo Playground and ManiSkill with the real packages; none of them is needed to work on Echelon.

Each wants a MuJoCo or a Gymnasium of its own, so each is tested in an environment of its own:
`python -m venv x && x/bin/pip install -e '.[mjlab]' pytest && x/bin/pytest -rs tests/envs/test_libraries.py`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from envs.life import live
from viewing.states import simulated

from echelon import cli
from echelon.errors import UserError
from echelon.runs.trained import Trained
from echelon.viewing import recorder

CPU = torch.device("cpu")


def record(run: Path) -> None:
    """Bodies move, and are where MuJoCo has them."""
    (tape,) = recorder.record(Trained.load(run))
    assert np.ptp(tape.qpos, axis=0).max() > 1e-3
    for frame in (0, len(tape.poses) - 1):
        assert tape.poses[frame] == pytest.approx(simulated(tape, frame), abs=1e-6)
    assert cli.main(["record", str(run), "--format", "html"]) == 0


def test_mjlab(tmp_path: Path) -> None:
    pytest.importorskip("mjlab", reason="needs pip install -e '.[mjlab]'")
    flags = ["--algo", "ppo", "--num-envs", "8", "--update.horizon", "8"]
    lines = live("mjlab:Mjlab-Cartpole-Balance", tmp_path / "run", *flags)
    assert any(name.startswith("env/Episode_Reward/") for name in lines[-1])
    record(tmp_path / "run")


def test_playground(tmp_path: Path) -> None:
    pytest.importorskip("mujoco_playground", reason="needs pip install -e '.[playground]'")
    from echelon.envs.playground_env import make_playground as make

    env = make("CartpoleBalance", 3, CPU, 0, episode_length=3)
    first = env.reset()["policy"].clone()
    steps = [env.step(torch.ones(3, 1)) for _ in range(3)]
    assert [step.truncated.tolist() for step in steps] == [[False] * 3, [False] * 3, [True] * 3]
    assert torch.equal(steps[2].obs["policy"], first)  # back to where it began
    assert not torch.equal(steps[2].final_obs["policy"], first)
    assert torch.equal(make("CartpoleBalance", 3, CPU, 0).reset()["policy"], first)
    engine, moved = env.drawing().engine, []
    for force in (0.0, 100.0):  # on the cart: a push in the viewer is felt
        env.reset()
        engine.xfrc_applied[0, 1, 0] = force
        start = float(engine.qpos[0, 0])
        env.step(torch.zeros(3, 1))
        moved.append(float(engine.qpos[0, 0]) - start)
    assert moved[1] > moved[0] + 3e-3  # 100 N move about a kilogram by 5 mm in 0.01 s
    live("playground:CartpoleBalance", tmp_path / "run", "--algo", "ppo", "--num-envs", "8", "--update.horizon", "8")
    record(tmp_path / "run")


def test_maniskill(tmp_path: Path) -> None:
    pytest.importorskip("mani_skill", reason="needs pip install -e '.[maniskill]'")
    from echelon.envs.maniskill_env import make_maniskill as make

    try:
        env = make("PickCube-v1", 2, CPU, 0, max_episode_steps=3)
    except UserError as error:
        pytest.skip(str(error))
    first = env.reset()["policy"].clone()
    assert not torch.equal(first[0], first[1])  # a seed each
    steps = [env.step(torch.zeros(2, env.action_dim)) for _ in range(3)]
    assert [step.truncated.tolist() for step in steps] == [[False] * 2, [False] * 2, [True] * 2]
    assert not torch.equal(steps[2].final_obs["policy"], steps[2].obs["policy"])
    assert steps[2].log["episode/successes"].tolist() == [0.0, 0.0]
    assert torch.equal(make("PickCube-v1", 2, CPU, 0).reset()["policy"], first)
    with pytest.raises(UserError, match="not an environment of ManiSkill; did you mean PickCube-v1"):
        make("PickCub-v1", 1, CPU, 0)
    flags = ["--algo", "ppo", "--num-envs", "2", "--update.horizon", "8", "--update.minibatches", "2"]
    lines = live("maniskill:PickCube-v1", tmp_path / "run", *flags, "--env-arg", "max_episode_steps=4")
    assert lines[-1]["successes/leader"] == 0.0


def test_success_in_maniskill_is_counted_once_and_ends_nothing() -> None:
    pytest.importorskip("mani_skill", reason="needs pip install -e '.[maniskill]'")
    from echelon.envs.maniskill_env import make_maniskill as make

    try:
        env = make("PushCube-v1", 1, CPU, 0, max_episode_steps=4)
    except UserError as error:
        pytest.skip(str(error))
    still = torch.zeros(1, env.action_dim)
    _goal_under_cube(env)
    first = env.step(still)
    assert first.log["episode/successes"].item() == first.log["episode/success_at_end"].item() == 1.0
    assert not first.terminated.any()
    _goal_under_cube(env, aside=0.5)
    second = env.step(still)
    assert (second.log["episode/successes"].item(), second.log["episode/success_at_end"].item()) == (1.0, 0.0)
    env.step(still)
    last = env.step(still)  # what is logged as an episode ends is that episode's, not the next one's
    assert last.truncated.all()
    assert last.log["episode/successes"].item() == 1.0
    assert env.step(still).log["episode/successes"].item() == 0.0
    ending = make("PushCube-v1", 1, CPU, 0, ignore_terminations=False)
    _goal_under_cube(ending)
    assert ending.step(still).terminated.all()


def _goal_under_cube(env: Any, aside: float = 0.0) -> None:
    """Begin an episode with the goal where the cube is, or move it so far away from there."""
    from mani_skill.utils.structs import Pose

    inside = env.envs[0].env.unwrapped
    if not aside:
        env.reset()
    pose = inside.obj.pose.raw_pose.clone()
    pose[:, 1] += aside
    inside.goal_region.set_pose(Pose.create(pose))

"""mjlab, MuJoCo Playground and ManiSkill with the real packages; none of them is needed to work on Echelon.

Each wants a MuJoCo or a Gymnasium of its own, so each is tested in an environment of its own:
`python -m venv x && x/bin/pip install -e '.[mjlab]' pytest && x/bin/pytest -rs tests/envs/test_libraries.py`.
"""

from pathlib import Path

import pytest
import torch
from envs.life import live

CPU = torch.device("cpu")


def test_mjlab(tmp_path: Path) -> None:
    pytest.importorskip("mjlab", reason="needs pip install 'echelon-rl[mjlab]'")
    flags = ["--algo", "ppo", "--num-envs", "8", "--update.horizon", "8"]
    lines = live("mjlab:Mjlab-Cartpole-Balance", tmp_path / "run", *flags)
    assert any(name.startswith("env/Episode_Reward/") for name in lines[-1])


def test_playground(tmp_path: Path) -> None:
    pytest.importorskip("mujoco_playground", reason="needs pip install 'echelon-rl[playground]'")
    from echelon.envs.playground_env import make

    env = make("CartpoleBalance", 3, CPU, 0, episode_length=3)
    first = env.reset()["policy"].clone()
    steps = [env.step(torch.ones(3, 1)) for _ in range(3)]
    assert [step.truncated.tolist() for step in steps] == [[False] * 3, [False] * 3, [True] * 3]
    assert torch.equal(steps[2].obs["policy"], first)  # back to where it began
    assert not torch.equal(steps[2].final_obs["policy"], first)
    assert torch.equal(make("CartpoleBalance", 3, CPU, 0).reset()["policy"], first)
    live("playground:CartpoleBalance", tmp_path / "run", "--algo", "ppo", "--num-envs", "8", "--update.horizon", "8")


def test_maniskill(tmp_path: Path) -> None:
    pytest.importorskip("mani_skill", reason="needs pip install 'echelon-rl[maniskill]'")
    from echelon.envs.maniskill_env import make

    try:
        make("PickCube-v1", 1, CPU, 0)
    except RuntimeError as error:
        pytest.skip(f"ManiSkill finds nothing to render with, which it needs even for states: {error}")
    flags = ["--algo", "ppo", "--num-envs", "2", "--update.horizon", "8", "--update.minibatches", "2"]
    live("maniskill:PickCube-v1", tmp_path / "run", *flags)

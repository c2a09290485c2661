"""The study of FrankaCubePush: its starts, its physics, and what it counts."""

import json
import sys
from functools import partial
from pathlib import Path

import franka_push_study as study
import mujoco
import numpy as np
import pytest
import torch

from echelon.tasks.franka_push import FrankaCubePush, FrankaCubePushConfig

CPU = torch.device("cpu")


def test_the_cube_starts_between_the_open_fingers() -> None:
    """Beside the cube's flat faces, at its height, and touching nothing but the table."""
    env = study.Caged(FrankaCubePushConfig(), 256, CPU, 0)
    env.reset()
    cube, (left, right) = env.cube(), env.tips()
    assert (left - cube)[:, 1].max() < -0.025
    assert (right - cube)[:, 1].min() > 0.025
    for tip in (left, right):
        assert (tip - cube)[:, [0, 2]].abs().max() < 0.0125  # well within a face of 5 cm
    model, data = env.engine.model, mujoco.MjData(env.engine.model)
    names = {"table", "cube_a"}
    for qpos in env.engine.qpos.numpy():
        data.qpos[:] = qpos
        mujoco.mj_forward(model, data)
        assert all({model.geom(int(g)).name for g in contact.geom} <= names for contact in data.contact)
    away = env.aside()
    assert 0.07 <= away.min() < 0.08
    assert 0.14 < away.max() <= 0.15
    bearing = torch.atan2(*(env.other() - cube)[:, :2].T)
    assert torch.histc(bearing, 8, -np.pi, np.pi).min() > 10  # of 32
    assert cube[:, :2].std(dim=0).min() > 0.002


def test_later_episodes_start_there_too() -> None:
    env = study.Caged(FrankaCubePushConfig(episode_length=2), 16, CPU, 0)
    env.reset()
    first = env.other().clone()
    for _ in range(2):
        env.step(torch.ones(16, 7))
    assert (env.grip() - env.cube()).norm(dim=1).max() < 0.015
    assert env.aside().max() < 0.151
    assert (env.other() != first).any(dim=1).all()


def test_an_untouched_cube_gains_nothing() -> None:
    found = study.play(study.other_physics("ours", 64), lambda noise, mean: 0.0 * noise)
    assert found.gain.abs().max() < 1e-3
    assert not any(getattr(found, name).any() for name in ("moved", "far", "low", "succeeded", "bad"))
    assert study.summarise(found) == {
        "episodes": 64, "moved": 0, "far": 0, "low": 0, "succeeded": 0, "gain": None, "gain_se": None
    }  # fmt: skip


def test_a_success_gains_what_it_pays_beyond_a_cube_that_stays() -> None:
    """Goals count from 20 cm on, so starts nearer than that end in the first step with 4 · 299 points."""
    env, twin = study.other_physics("ours", 64), study.other_physics("ours", 64)
    env.config = FrankaCubePushConfig(success_distance=0.2)
    twin.reset()
    distance = twin.aside().double().numpy()
    stays = 298 * 2 * (1 - np.tanh(10 * distance)) - 5 * np.tanh(10 * distance)
    found = study.play(env, lambda noise, mean: 0.0 * noise)
    assert np.array_equal(found.succeeded, distance < 0.2)
    assert 0 < found.succeeded.sum() < 64
    assert found.gain.numpy() == pytest.approx(np.where(distance < 0.2, 4 * 299 - stays, 0), abs=1e-3)


def test_pushes_are_seen() -> None:
    """Hands that come down on cubes between their fingers, shut, and go sideways."""
    env = study.Caged(FrankaCubePushConfig(), 8, CPU, 0)
    found = study.play(env, lambda noise, mean: torch.tensor((0.2, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0)).repeat(8, 1))
    assert found.moved.all()
    assert found.far.all()
    assert found.low.all()
    assert (found.gain.abs() > 1e-3).all()


def test_counts_by_hand() -> None:
    """Of five episodes the last is bad. Two moved, with gains 1 and 4: mean 2.5, deviation 1.5·√2, error 1.5."""

    def yes(*rows: int) -> torch.Tensor:
        return torch.tensor([row in rows for row in range(5)])

    gain = torch.tensor((1.0, 7.0, 4.0, 7.0, 100.0), dtype=torch.float64)
    found = study.Episodes(gain, yes(0, 2, 4), yes(2, 4), yes(0, 1, 2, 4), yes(4), yes(4))
    row = study.summarise(found)
    assert row == {
        "episodes": 4,
        "moved": 2,
        "far": 1,
        "low": 3,
        "succeeded": 0,
        "gain": 2.5,
        "gain_se": row["gain_se"],
    }
    assert row["gain_se"] == pytest.approx(1.5)


def test_other_physics_change_the_model() -> None:
    plain = FrankaCubePush(FrankaCubePushConfig(), 1, CPU, 0).engine.model
    fields = ("geom_friction", "dof_dampingpoly", "dof_damping", "geom_solref", "geom_solimp")
    changed = {}
    for name in study.PHYSICS:
        model = study.other_physics(name, 1).engine.model
        changed[name] = {field for field in fields if not np.array_equal(getattr(model, field), getattr(plain, field))}
    assert list(changed.values()) == [set(), {"geom_friction"}, {"dof_dampingpoly"}, {"geom_solref", "geom_solimp"}]
    default = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    soft = study.other_physics("MuJoCo's default contacts", 1).engine.model
    assert (soft.geom_solref == default.geom_solref).all()
    assert (soft.geom_solimp == default.geom_solimp).all()
    slippery = study.other_physics("friction 0.3", 1).engine.model.geom_friction
    assert (slippery[:, 0] == 0.3).all()
    touching = (plain.geom_contype | plain.geom_conaffinity) != 0
    assert (slippery[touching, 1:] == plain.geom_friction[touching, 1:]).all()


def test_actions_by_hand() -> None:
    noise, mean = torch.tensor((-0.5, 2.0)), torch.tensor((1.0, -1.0))
    made = {name: draw(noise, mean).tolist() for name, draw in study.ACTIONS.items()}
    assert made == {
        "sigma 0.5": [-0.25, 1.0],
        "sigma 1": [-0.5, 2.0],
        "sigma 2": [-1.0, 4.0],
        "sigma 4": [-2.0, 8.0],
        "bang-bang": [-1.0, 1.0],
        "mean of size 2, sigma 1": [1.5, 0.0],
    }


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        (("explore", "--episodes", "4"), 12),
        (("easy", "--num-envs", "48", "--env-steps", "1536"), 4),  # 2 iterations of 16 steps, with each algorithm
    ],
)
def test_both_studies_append_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: tuple[str, ...], lines: int
) -> None:
    out = tmp_path / "rows.jsonl"
    out.write_text("{}\n")
    monkeypatch.setattr(study, "FrankaCubePushConfig", partial(FrankaCubePushConfig, episode_length=10))
    monkeypatch.setattr(study, "EVERY", 1)
    monkeypatch.setattr(sys, "argv", ["franka_push_study.py", *flags, "--json", str(out)])
    study.main()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 1 + lines
    assert all(row["study"] == flags[0] for row in rows[1:])
    if flags[0] == "easy":
        assert [(row["algo"], row["env_steps"], len(row["sigma"])) for row in rows[1:]] == [
            ("ppo", 768, 1), ("ppo", 1536, 1), ("cpo", 768, 6), ("cpo", 1536, 6)
        ]  # fmt: skip

"""Goals, clocks, ends and curricula of the AllegroKuka tasks, in states put there by hand.

Rewards, observations and flags are compared step by step in `originals`.
"""

import math
from typing import Any

import pytest
import torch
from tasks.allegro_kuka.states import REGRASPING, REORIENTATION, THROW, TWO_ARMS, idle
from tasks.states import begun, put_object, turn

from echelon import tasks
from echelon.envs.contract import Adaptive
from echelon.tasks.allegro_kuka.task import AllegroKuka

AIR = torch.tensor([0.0, -0.6, 1.0])
"""Out of the hand's reach, and not for long where it is: 1/60 s of free fall is 1.4 mm."""
QUARTER = turn((0.0, 0.0, 1.0), math.pi / 2)


def in_the_air(task: str, reached: list[bool], **settings: Any) -> AllegroKuka:
    """Objects in the air; the goal is there too, or half a metre away."""
    env, everything = begun(task, len(reached), **({"force_scale": 0.0} | settings)), torch.ones(len(reached)).bool()
    put_object(env, AIR)
    env.kept["goal_position"].copy_(AIR + torch.tensor([[0.0, 0.0, 0.0 if at else 0.5] for at in reached]))
    env.kept["goal_orientation"].copy_(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    env.progress.new_object(everything, env.reach())
    env.progress.new_goal(everything, env.distance())
    return env


def test_switchboard() -> None:
    def row(task: str) -> list:
        c, t = tasks.info(task).preset.env, tasks.info(task).task
        base = [c.episode_length, c.keypoints, c.success_steps, c.max_successes, c.replace_object, c.objects]
        base += [c.tolerance, c.target_tolerance, c.force_scale, c.relative_arm, c.reach_until_lifted]
        return [*base, c.arm_speed_weight, c.hand_speed_weight, c.hand_distance, t.scene[5:-4]]

    speeds = [-0.003, -0.0003]
    assert row(REGRASPING) == [399, 1, 30, 50, True, "all", 0.075, 0.01, 2.0, True, True, *speeds, None, "regrasping"]
    assert row(REORIENTATION) == [599, 4, 1, 50, False, "all", 0.075, 0.01, 2.0, True, True, *speeds, 1.5, "one_arm"]
    assert row(THROW) == [299, 1, 5, 50, True, "small", 0.075, 0.075, 0.0, True, True, *speeds, None, "throw"]
    assert row(TWO_ARMS) == [599, 4, 1, 50, False, "all", 0.075, 0.01, 2.0, False, False, 0, 0, None, "two_arms"]


def test_a_goal_reached_is_paid_counted_and_replaced_within_the_step() -> None:
    env = in_the_air(REORIENTATION, [True, False, True])
    env.clock[:], env.progress.lifted[:], env.progress.best_reach[:] = 100, True, 0.2
    position, before, target = env.kept["goal_position"], env.kept["goal_position"].clone(), env.arms.target.clone()
    step = env.step(idle(env))
    reached = torch.tensor([True, False, True])
    assert torch.equal(step.log["reward/goal"], 1000.0 * reached)
    assert torch.equal(step.log["episode/successes"], reached.float())
    assert env.clock.tolist() == [0, 101, 0]
    assert not (step.terminated | step.truncated).any()
    assert torch.equal((position != before).any(dim=1), reached)
    assert env.progress.near_steps.tolist() == [0, 0, 0]
    assert env.progress.lifted.all()  # the object stays where it is
    torch.testing.assert_close(env.progress.best_reach, torch.full((3, 4), 0.2))
    torch.testing.assert_close(env.progress.best_distance[reached], env.distance()[reached])
    torch.testing.assert_close(env.arms.target[:, :7], target[:, :7])
    torch.testing.assert_close(env.engine.mocap_pos[:, 0].float(), position)
    torch.testing.assert_close(env.engine.mocap_quat[:, 0].float(), env.kept["goal_orientation"])
    # The observation to act on shows the goal to act for, its distance, the clock of it, and the success.
    obs = step.obs["policy"]
    assert torch.equal(obs, step.final_obs["policy"])
    torch.testing.assert_close(obs[:, 93:105], env._to_goal().flatten(1))
    torch.testing.assert_close(obs[reached, 108], env.distance()[reached])
    torch.testing.assert_close(obs[:, 114], torch.tensor([0.0, math.log(11.1), 0.0]))
    torch.testing.assert_close(obs[:, 115], math.log(2.0) * reached)
    assert env.step(idle(env)).log["episode/successes"].tolist() == [1.0, 0.0, 1.0]


def test_fifty_successes_end_an_episode_and_terms_can_be_scaled() -> None:
    env = in_the_air(REORIENTATION, [True, True, False])
    env.kept["successes"][:] = torch.tensor([49.0, 48.0, 49.0])
    env.reward_scales["goal"][0], env.reward_scales["lift_bonus"][1] = 0.5, 3.0
    step = env.step(idle(env))
    assert step.terminated.tolist() == [True, False, False]
    assert step.log["episode/successes"].tolist() == [50.0, 49.0, 49.0]
    assert env.kept["successes"].tolist() == [0.0, 49.0, 49.0]
    assert env.kept["last_successes"].tolist() == [50.0, 0.0, 0.0]
    assert env.longest_episode == 50 * 599
    assert step.log["reward/goal"].tolist() == [500.0, 1000.0, 0.0]
    assert step.log["reward/lift_bonus"].tolist() == [300.0, 900.0, 300.0]
    assert step.log["lifted"].tolist() == [1.0] * 3


def test_regrasping_puts_the_object_back_on_the_table() -> None:
    env = in_the_air(REGRASPING, [True, True, False])
    env.progress.near_steps[:] = torch.tensor([29, 10, 29])
    joints, force = env.engine.qpos[:, 7:].clone(), torch.tensor([0.1, 0.0, 0.0])
    env.pushes.force[:], env.pushes.chance[:], env.progress.lifted[:] = force, 0.0, True
    step = env.step(idle(env))
    assert step.log["reward/goal"].tolist() == pytest.approx([1000 / 30, 1000 / 30, 0.0])
    assert step.log["episode/successes"].tolist() == [1.0, 0.0, 0.0]
    place = env.engine.qpos[:, :3].float()
    assert (place[0, :2].abs() <= 0.1).all()
    torch.testing.assert_close(place[1:], AIR.expand(2, 3), rtol=0, atol=3e-3)
    assert not env.engine.qvel[0, :6].any()
    assert env.engine.qvel[1, 2] < -0.1
    assert env.progress.lifted.tolist() == [False, True, True]
    assert env.progress.near_steps.tolist() == [0, 11, 29]
    torch.testing.assert_close(env.progress.best_reach[0], env.reach()[0])
    assert (env.engine.qpos[:, 7:] - joints).abs().max() < 0.1  # the arm continues
    torch.testing.assert_close(env.pushes.force, force.expand(3, 3), rtol=0.01, atol=0)
    torch.testing.assert_close(step.obs["policy"][0, 91:95], env.reach()[0])
    before = env.engine.qpos[0, :3].clone()
    env.step(idle(env))
    assert (env.engine.qpos[0, :3] - before).norm() < 5e-3  # and the simulation does, from there


def test_a_bucket_catches_what_falls_into_it_and_forces_turn_with_the_object() -> None:
    """Dropped from above the rim, not too long: near within 0.1125 m of the point 5 cm above the underside."""
    env = begun(THROW, 24)
    small = [i for i in range(24) if env.scales[i].amax() <= 2.0]
    assert len(small) > 5
    bucket = torch.tensor([0.7, -0.4, 0.5])
    env.kept["goal_position"][:] = torch.tensor([0.7, -0.4, 0.55])
    env._new_goals(torch.zeros(24, dtype=torch.bool))
    torch.testing.assert_close(env.engine.mocap_pos[:, 0].float(), bucket.expand(24, 3))
    put_object(env, torch.tensor([0.7, -0.4, 0.62]))
    env.engine.mocap_pos[:, 0] = bucket.double()
    env.engine.mocap_quat[:, 0] = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    env.progress.near_steps[:] = -1000  # stay with this bucket
    for _ in range(60):
        env.step(idle(env))
    inside = env.engine.qpos[small, :3].float() - bucket
    assert (inside[:, :2].norm(dim=1) < 0.06).all()
    assert ((inside[:, 2] > 0.01) & (inside[:, 2] < 0.12)).all()
    assert env.engine.qvel[small, :3].norm(dim=1).max() < 0.3
    env.progress.near_steps[:] = 0
    for count in range(5):
        assert env.kept["successes"][small].eq(0).all(), count
        env.step(idle(env))
    assert env.kept["successes"][small].eq(1).all()
    assert (env.engine.qpos[small, 0].abs() <= 0.1).all()  # back on the table
    env = begun(REORIENTATION, 2)
    put_object(env, AIR, QUARTER)
    env.pushes.force[:], env.pushes.chance[:] = torch.tensor([0.3, 0.0, 0.1]), 0.0
    env.control(idle(env))
    wrench = env.engine.xfrc_applied[:, env.engine.model.body("object").id].float()
    expected = 0.9979083 * torch.tensor([0.0, 0.3, 0.1, 0.0, 0.0, 0.0])
    torch.testing.assert_close(wrench, expected.expand(2, 6), rtol=1e-5, atol=1e-6)
    assert env.pushes.scale == pytest.approx(0.3)  # 2 N/kg times the 0.15 kg of the first object
    assert begun(THROW, 1).pushes.scale == 0.0


def test_the_tolerance_shrinks_with_successes_is_saved_and_can_be_adopted() -> None:
    env = in_the_air(REORIENTATION, [True, False], tolerance_interval=2)
    env.kept["successes"][:] = torch.tensor([49.0, 0.0])
    # An episode with 50 successes ends: 25 in the mean.
    assert env.step(idle(env)).log["tolerance"].tolist() == pytest.approx([0.075, 0.075])
    assert env.step(idle(env)).log["tolerance"].tolist() == pytest.approx([0.0675, 0.0675])
    state = env.state_dict()
    fresh = begun(REORIENTATION, 2, tolerance_interval=2)
    fresh.load_state_dict(state)
    assert fresh.tolerance.value.item() == pytest.approx(0.0675)
    assert fresh.kept["last_successes"].tolist() == [50.0, 0.0]
    other = begun(REORIENTATION, 5, tolerance_interval=2)  # of any size
    assert isinstance(other, Adaptive)
    other.adopt(state, fixed=True)
    other.kept["last_successes"][:] = 50.0
    for _ in range(3):
        step = other.step(idle(other))
    assert step.log["tolerance"].tolist() == pytest.approx([0.0675] * 5)
    # A step has the tolerance after its change. Half a metre is near at 0.34, not at 0.9 of it: 0.51 and 0.459.
    env = in_the_air(REGRASPING, [False, False], tolerance=0.34, tolerance_interval=2)
    env.kept["last_successes"][:] = 3.0
    near = [env.step(idle(env)).log["reward/goal"].gt(0).tolist() for _ in range(2)]
    assert near == [[True, True], [False, False]]


@pytest.mark.parametrize("task", [REORIENTATION, TWO_ARMS])
def test_held_is_high_now_with_two_fingertips_at_the_surface(task: str) -> None:
    """Two tips of the last hand a metre up: at 4 cm from the surface, then one at 6 cm, then both but below 0.73 m."""
    env = begun(task, 3)
    tips = env.arms._sensors[:, 13:].flatten()
    env.engine.sensordata[:, tips] = 9.0  # the others are far away
    half = 0.5 * 0.05 * env.scales  # turned by 90° about z: the object's x axis is the world's y
    ends = torch.tensor([[0.04, 0.04], [0.04, 0.06], [0.04, 0.04]])
    centre = torch.tensor([[0.3, 0.2, 0.74], [0.3, 0.2, 0.74], [0.3, 0.2, 0.72]])
    put_object(env, centre, QUARTER)
    for tip, sign in enumerate((1.0, -1.0)):
        place = centre.clone()
        place[:, 1] += sign * (half[:, 0] + ends[:, tip])
        env.engine.sensordata[:, tips[-12 + 3 * tip :][:3]] = place.double()
    assert env.held().tolist() == [True, False, False]


def test_an_episode_remembers_and_the_next_begins_with_nothing_of_it() -> None:
    env = in_the_air(REORIENTATION, [False, False], force_scale=2.0)
    env.step(idle(env))
    put_object(env, torch.tensor([0.0, -0.6, 0.5]))
    env.progress.lifted[:] = False
    step = env.step(idle(env))
    assert step.log["lifted"].tolist() == [0.0, 0.0]
    assert step.log["episode/lifted"].tolist() == [1.0, 1.0]
    put_object(env, torch.tensor([[0.0, -0.6, 0.05], [0.0, -0.6, 1.0]]))  # the first has fallen
    env.pushes.force[:], env.pushes.chance[:], env.progress.lifted[:] = 0.1, 0.0, True
    env.progress.best_reach[:], env.kept["successes"][:] = 0.01, 3.0
    step = env.step(idle(env))
    assert step.terminated.tolist() == [True, False]
    assert env.totals["lifted"].tolist() == [0.0, 1.0]
    assert env.pushes.force.any(dim=1).tolist() == [False, True]
    assert 0.001 <= env.pushes.chance[0] <= 0.1
    assert env.pushes.chance[1] == 0.0
    assert env.progress.lifted.tolist() == [False, True]
    torch.testing.assert_close(env.progress.best_reach, torch.stack((env.reach()[0], torch.full((4,), 0.01))))
    torch.testing.assert_close(env.progress.best_distance[0], env.distance()[0])
    torch.testing.assert_close(env.arms.target[0], env.arms.angles()[0])
    assert env.kept["successes"].tolist() == [0.0, 3.0]
    # Observed are the new ones, and no reward.
    torch.testing.assert_close(step.obs["policy"][0, 109:113], env.reach()[0])
    assert step.obs["policy"][0, 113:].tolist() == [0.0] * 4

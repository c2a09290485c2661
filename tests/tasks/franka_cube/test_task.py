"""What the Franka tasks share: the arm goes where it is told, the gripper holds, and both tasks can be done."""

import math

import numpy as np
import pytest
import torch
from gpu import MARKS, needs_gpu
from tasks.franka_cube.script import successes
from tasks.franka_cube.states import HOME, PUSH, STACK, put
from tasks.franka_cube.test_operational_space import mujocos
from tasks.states import begun, check_spread

from echelon.tasks.franka_cube.task import FrankaCubeStack

ASIDE, OTHER = (0.0, 0.5, 1.05), (0.0, -0.5, 1.05)
DIRECTIONS = torch.cat((torch.eye(3), -torch.eye(3), torch.tensor([(0.6, 0.8, 0.0), (0.48, -0.6, 0.64)])))


def at_home(count: int, device: str = "cpu") -> FrankaCubeStack:
    """The arm in its default pose, the cubes out of its way."""
    return put(begun(STACK, count, device), ASIDE, OTHER)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=MARKS)])
def test_the_grip_point_follows_a_straight_line_of_10_cm(device: str) -> None:
    """A target that moves 10 cm in 2.5 s and then stays; the action is the way to it."""
    env = at_home(len(DIRECTIONS), device)
    lines, start = DIRECTIONS.to(device), env.grip().clone()
    turned = env._sensor("grip_quat", 4).clone()
    for step in range(180):
        target = start + 0.1 * min(1.0, step / 150) * lines
        action = torch.zeros(len(lines), 7, device=device)
        action[:, :3] = (target - env.grip()) / 0.1
        env.step(action)
        moved = env.grip() - start
        along = (moved * lines).sum(dim=1, keepdim=True)
        assert (env.grip() - target).norm(dim=1).max() < 0.01
        assert (moved - along * lines).norm(dim=1).max() < 0.002
        assert (2 * (env._sensor("grip_quat", 4) * turned).sum(dim=1).abs().clamp(max=1.0).acos()).max() < 0.02
    assert (env.grip() - target).norm(dim=1).max() < 0.002


@needs_gpu
def test_torques_on_cuda_are_those_of_the_cpu() -> None:
    here, there = at_home(16), at_home(16, "cuda")
    generator = torch.Generator().manual_seed(0)
    qpos, qvel = here.engine.qpos.clone(), torch.randn(here.engine.qvel.shape, generator=generator).double()
    qpos[:, -9:-2] += 0.2 * torch.randn(16, 7, generator=generator)
    everything = torch.ones(16, dtype=torch.bool)
    here.engine.set_state(everything, qpos, qvel)
    there.engine.set_state(everything.cuda(), qpos.float().cuda(), qvel.float().cuda())
    action = 2 * torch.rand(16, 7, generator=generator) - 1
    torch.testing.assert_close(there.control(action.cuda()).cpu(), here.control(action), rtol=1e-3, atol=1e-2)


def test_without_action_the_grip_point_stays_and_the_posture_returns_and_the_gripper_shuts_below_zero() -> None:
    env = at_home(1)
    joints = torch.tensor(HOME, dtype=torch.float64)
    joints[[0, 2, 4]] += torch.tensor((0.3, -0.3, 0.2))
    put(env, ASIDE, OTHER, joints)
    start, away = env.grip(), (joints - torch.tensor(HOME)).norm()
    for _ in range(120):
        env.step(torch.zeros(1, 7))
    assert (env.grip() - start).norm() < 0.01
    assert (env.engine.qpos[0, -9:-2] - torch.tensor(HOME)).norm() < 0.5 * away
    env = at_home(3)
    assert env.substeps * env.engine.model.opt.timestep == pytest.approx(1 / 60)
    action = torch.zeros(3, 7)
    action[:, 6] = torch.tensor((0.0, 1.0, -1e-3))
    control = env.control(action)
    assert control.shape == (3, 9)
    torch.testing.assert_close(control[:, 7:], torch.tensor((0.04, 0.04, 0.0))[:, None].expand(3, 2))
    for _ in range(60):
        env.step(action)
    torch.testing.assert_close(env.engine.qpos[:, -2:].float(), control[:, 7:], atol=1e-3, rtol=0)


def test_torques_by_mujocos_matrices() -> None:
    """J M⁻¹ τ is the grip point's wanted acceleration; along n, with J n = 0, n τ = n M b, b that of the joints."""
    env, generator = at_home(5), torch.Generator().manual_seed(0)
    qpos, qvel = env.engine.qpos.clone(), env.engine.qvel.clone()
    qpos[:, -9:-2] += 0.2 * torch.randn(5, 7, generator=generator)
    qvel[:, -9:-2] = 0.1 * torch.randn(5, 7, generator=generator)
    env.engine.set_state(torch.ones(5, dtype=torch.bool), qpos, qvel)
    action = 0.1 * torch.randn(5, 7, generator=generator)
    torque = env.control(action)[:, :7].double().numpy()
    for row in range(5):
        (mass, jacobian), speed = mujocos(env.engine, row), qvel[row, -9:-2].numpy()
        scale = np.array((0.1, 0.1, 0.1, 0.5, 0.5, 0.5))
        wanted = 150 * scale * action[row, :6].numpy() - 24.495 * jacobian @ speed
        np.testing.assert_allclose(jacobian @ np.linalg.solve(mass, torque[row]), wanted, atol=0.01)
        free = np.linalg.svd(jacobian)[2][-1]
        posture = 10 * (np.array(HOME) - qpos[row, -9:-2].numpy()) - 6.325 * speed
        np.testing.assert_allclose(free @ torque[row], free @ mass @ posture, atol=1e-3)
    # They stay within the motors.
    env, limits = at_home(40), torch.tensor((87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0))
    joints = env._low + (env._high - env._low) * torch.rand(40, 7, generator=generator)
    put(env, ASIDE, OTHER, joints)
    found = env.control(2 * torch.rand(40, 7, generator=generator) - 1)[:, :7].abs()
    assert (found <= limits).all()
    assert (found == limits).any(dim=0).sum() > 1


def test_scripts_stack_the_cubes_and_slide_one_to_its_goal() -> None:
    """Cubes up to 15 cm from the table's centre; grasped, lifted, put down, released. Or held by the gripper and
    carried a centimetre over the table, which is not yet lifting."""
    stacked, steps = successes(begun(STACK, 8, start_spread=0.15), 0.14, 0.0605)
    assert stacked.all()
    assert max(step.log["quarantined"].sum().item() for step in steps) == 0
    pushed, steps = successes(begun(PUSH, 8, start_spread=0.15), 0.01, 0.01)
    assert pushed.all()
    assert (torch.stack([step.reward for step in steps]).amax(dim=0) > 100).all()


@pytest.mark.parametrize("task", [PUSH, STACK])
def test_starts_where_cubes_rest(task: str) -> None:
    """Cube A keeps away from the goal or cube B, which is drawn uniformly: standard deviation 0.25/√3."""
    env = begun(task, 2000)
    qpos = env.engine.qpos.float()
    other, height, least = (env.kept["goal"], 1.05, 0.1414) if task == PUSH else (qpos[:, 7:14], 1.06, 0.1697)
    for pose, z in ((qpos[:, :7], 1.05), (other, height)):  # half of its own edge above the table
        torch.testing.assert_close(pose[:, 2], torch.full((2000,), z))
        assert (pose[:, :2].mean(dim=0).abs() < 0.02).all()
        check_spread(2 * torch.atan2(pose[:, 6], pose[:, 3]), -0.785, 0.785)
        check_spread(pose[:, :2], -0.25, 0.25)
        torch.testing.assert_close(pose[:, 3:].norm(dim=1), torch.ones(2000))
        assert not pose[:, 4:6].any()
    torch.testing.assert_close(other[:, :2].std(dim=0), torch.full((2,), 0.25 / math.sqrt(3)), atol=0.005, rtol=0)
    apart = (qpos[:, :2] - other[:, :2]).norm(dim=1)
    assert least <= apart.min() < least + 0.02
    assert (qpos[:, 3:7] != other[:, 3:]).any(dim=1).all()
    spread = qpos[:, -9:-2] - torch.tensor(HOME)
    check_spread(spread, -0.25, 0.25)
    torch.testing.assert_close(spread.std(dim=0), torch.full((7,), 0.25 / math.sqrt(3)), atol=0.005, rtol=0)
    assert torch.corrcoef(spread.T).triu(1).abs().max() < 0.08  # independent draws
    assert (qpos[:, -2:] == torch.tensor(0.035)).all()
    assert not env.engine.qvel.any()
    assert not env.failed().any()
    resting = begun(task, 50, joint_spread=0.0)
    start = resting.engine.qpos[:, :-9].clone()
    for _ in range(30):
        resting.step(torch.zeros(50, 7))
        assert resting.engine.qvel[:, :-9].abs().max() < 0.02
    torch.testing.assert_close(resting.engine.qpos[:, :-9], start, atol=1e-4, rtol=0)


def test_starts_in_narrow_places_and_at_limits() -> None:
    """Within 10 cm of the centre, 17 cm from cube B often cannot be had; cubes touch below 8.5 cm at the latest."""
    start = begun(STACK, 512, start_spread=0.1, joint_spread=1.5).start_state().qpos
    distance = (start[:, :2] - start[:, 7:9]).norm(dim=1)
    assert (distance < 0.17).any()
    assert distance.min() > 0.085
    assert start[:, -6].min() == torch.tensor(-3.0718)
    assert start[:, -4].max() == torch.tensor(3.7525)

"""Mass matrix, Jacobian and torque against MuJoCo's own and against the textbook's form of the law, in float64."""

import mujoco
import numpy as np
import pytest
import scenes
import torch
from tasks.robots import limits

from echelon.sim.cpu import CpuEngine
from echelon.tasks.franka_cube.operational_space import Arm, solve

NUM_SIMS = 40
JOINTS = tuple(f"panda/joint{i}" for i in range(1, 8))


@pytest.fixture(scope="module", params=["franka_push", "franka_stack"])
def engine(request: pytest.FixtureRequest) -> CpuEngine:
    """Random states within the joints' limits, fingers included."""
    engine = CpuEngine(scenes.load(request.param), NUM_SIMS)
    rng = np.random.default_rng(0)
    qpos, qvel = engine.qpos.clone(), torch.from_numpy(rng.normal(size=engine.qvel.shape))
    qpos[:, -9:] = torch.from_numpy(rng.uniform(*limits("panda").T, (NUM_SIMS, 9)))
    engine.set_state(torch.ones(NUM_SIMS, dtype=torch.bool), qpos, qvel)
    return engine


def mujocos(engine: CpuEngine, sim: int) -> tuple[np.ndarray, np.ndarray]:
    """M `[7, 7]` and J `[6, 7]` of the grip site, by MuJoCo."""
    model, data = engine.model, mujoco.MjData(engine.model)
    data.qpos[:] = engine.qpos[sim]
    mujoco.mj_forward(model, data)
    mass, jacobian = np.zeros((model.nv, model.nv)), np.zeros((6, model.nv))
    mujoco.mj_fullM(model, data, mass)
    mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], model.site("panda/grip").id)
    arm = slice(model.nv - 9, model.nv - 2)
    return mass[arm, arm], jacobian[:, arm]


def grip(engine: CpuEngine) -> torch.Tensor:
    start = engine.model.sensor("panda/grip_pos").adr[0]
    return engine.sensordata[:, start : start + 3]


def test_mass_matrix_and_jacobian_are_mujocos_and_torque_is_the_textbooks(engine: CpuEngine) -> None:
    """τ = Jᵀ Λ F + (I − Jᵀ Λ J M⁻¹) M b by inverses; where the arm is stretched, damping would tell them apart."""
    rng, arm = np.random.default_rng(1), Arm(engine, JOINTS)
    own_mass, own_jacobian = arm.mass_matrix(), arm.jacobian(grip(engine))
    assert own_mass.dtype == own_jacobian.dtype == torch.float64
    tool, joints = rng.normal(size=(NUM_SIMS, 6)), rng.normal(size=(NUM_SIMS, 7))
    torque = arm.torque(grip(engine), torch.from_numpy(tool), torch.from_numpy(joints))
    compared = 0
    for sim in range(NUM_SIMS):
        mass, jacobian = mujocos(engine, sim)
        np.testing.assert_allclose(own_mass[sim], mass, atol=1e-10)
        np.testing.assert_allclose(own_jacobian[sim], jacobian, atol=1e-10)
        inverse = np.linalg.inv(mass)
        mobility = jacobian @ inverse @ jacobian.T
        if np.linalg.eigvalsh(mobility)[0] < 0.004:
            continue
        compared += 1
        tool_inertia = np.linalg.inv(mobility)
        null = np.eye(7) - jacobian.T @ tool_inertia @ jacobian @ inverse
        expected = jacobian.T @ tool_inertia @ tool[sim] + null @ mass @ joints[sim]
        np.testing.assert_allclose(torque[sim], expected, rtol=1e-3, atol=1e-3)
        # What the law is for: the tool accelerates as wanted, whatever is wanted of the joints.
        np.testing.assert_allclose(jacobian @ inverse @ torque[sim].numpy(), tool[sim], atol=1e-3)
    assert compared > NUM_SIMS // 2


def test_a_stretched_arm_gets_finite_torques(engine: CpuEngine) -> None:
    qpos = engine.qpos.clone()
    straight = CpuEngine(engine.model, NUM_SIMS)
    qpos[:, -9:] = 0.0
    straight.set_state(torch.ones(NUM_SIMS, dtype=torch.bool), qpos, torch.zeros_like(engine.qvel))
    mass, jacobian = mujocos(straight, 0)
    assert np.linalg.eigvalsh(jacobian @ np.linalg.inv(mass) @ jacobian.T)[0] < 1e-9
    torque = Arm(straight, JOINTS).torque(grip(straight), torch.ones(NUM_SIMS, 6), torch.ones(NUM_SIMS, 7))
    assert torque.isfinite().all()


def test_solve_is_lapacks() -> None:
    for size, columns in ((6, 1), (7, 6), (1, 3)):
        generator = torch.Generator().manual_seed(size)
        root = torch.randn(50, size, size + 2, generator=generator, dtype=torch.float64)
        matrix, right = root @ root.mT, torch.randn(50, size, columns, generator=generator, dtype=torch.float64)
        torch.testing.assert_close(solve(matrix, right), torch.linalg.solve(matrix, right), rtol=1e-8, atol=1e-8)

"""The AllegroKuka tasks on MuJoCo Warp: no waiting, no overflow, and the same when recorded as a graph."""

import pytest
import torch
from gpu import MARKS
from tasks.allegro_kuka.states import FAMILY, REORIENTATION
from tasks.states import begun

from echelon.device.capture import Captured
from echelon.tasks.allegro_kuka.task import AllegroKuka

pytestmark = MARKS
NUM_ENVS = 128


def actions(env: AllegroKuka, steps: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return (2 * torch.rand(steps, NUM_ENVS, env.action_dim, generator=generator) - 1).cuda()


@pytest.mark.parametrize("task", FAMILY)
def test_steps_neither_wait_nor_overflow(task: str) -> None:
    env = begun(task, NUM_ENVS, "cuda")
    plan = actions(env, 40)
    env.step(plan[0])
    torch.cuda.set_sync_debug_mode("error")
    try:
        for action in plan[1:]:
            step = env.step(action)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert step.obs["policy"].isfinite().all()
    assert not env.engine.overflow.any()
    assert not step.log["quarantined"].any()
    assert step.obs["policy"][:, :23].std() > 0.1


@pytest.mark.parametrize("task", FAMILY)
def test_a_recorded_step_continues_like_an_eager_one(task: str) -> None:
    eager, recorded = begun(task, NUM_ENVS, "cuda"), begun(task, NUM_ENVS, "cuda")
    plan = actions(eager, 8)
    action = torch.zeros_like(plan[0])
    captured = Captured(lambda: recorded.step(action), recorded.device, [recorded.generator], recorded.capturing)
    for values in plan:
        action.copy_(values)
        there, here = captured(), eager.step(values)
        torch.testing.assert_close(there.obs["policy"], here.obs["policy"], rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(there.reward, here.reward, rtol=1e-2, atol=1e-1)
    assert torch.equal(eager.clock, recorded.clock)


def test_first_steps_are_those_on_a_cpu() -> None:
    """The same states on both engines, objects of all sizes among them."""
    there, here = begun(REORIENTATION, NUM_ENVS, "cuda"), begun(REORIENTATION, NUM_ENVS)
    everything = torch.ones(NUM_ENVS, dtype=torch.bool)
    there.engine.set_state(everything.cuda(), here.engine.qpos.float().cuda(), here.engine.qvel.float().cuda())
    for name, value in here.kept.items():
        there.kept[name].copy_(value)
    for env in (here, there):
        env.pushes.chance.zero_()
    for action in actions(there, 5):
        far, near = there.step(action), here.step(action.cpu())
    # Where an object starts inside the hand the solver stops at its limit, and there the engines differ.
    difference = (far.obs["policy"].cpu() - near.obs["policy"]).abs().amax(dim=1)
    assert (difference < 1e-2).float().mean() > 0.9

"""Physics that is repeated ends where the rollout did."""

import torch

from echelon import tasks
from echelon.bench.physics import physics_of
from echelon.tasks import preset


def test_it_ends_where_the_steps_did() -> None:
    env = tasks.make("Hopper", preset("Hopper").env, 8, torch.device("cpu"), 0)
    env.reset()
    generator = torch.Generator().manual_seed(0)
    actions = 2 * torch.rand(6, 8, env.action_dim, generator=generator) - 1
    began = env.engine.qpos.clone()
    repeat = physics_of(env, actions)
    whole = env.clock == 6  # no episode ended there meanwhile
    assert whole.sum() > 3
    qpos, qvel = env.engine.qpos[whole], env.engine.qvel[whole]
    assert (qpos - began[whole]).abs().amax(1).min() > 0.01
    for _ in range(2):
        env.engine.ctrl.zero_()
        repeat()
        torch.testing.assert_close(env.engine.qpos[whole], qpos, rtol=0, atol=1e-6)
        torch.testing.assert_close(env.engine.qvel[whole], qvel, rtol=0, atol=1e-4)

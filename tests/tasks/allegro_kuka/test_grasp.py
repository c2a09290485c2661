"""A scripted policy picks objects up through the task's own actions: servos, friction and contacts allow it."""

import json
from pathlib import Path

import torch
from tasks.allegro_kuka.states import REORIENTATION
from tasks.states import begun, put
from torch import Tensor

from echelon.tasks.allegro_kuka import objects
from echelon.tasks.allegro_kuka.task import AllegroKuka

GRASPS = json.loads((Path(__file__).parents[1] / "grasps.json").read_text())


def go(env: AllegroKuka, steps: int, arm: Tensor, hand: Tensor) -> dict[str, Tensor]:
    """Move there in two thirds of the time; what the rewards were in sum."""
    low, high, begin = env.arms.low[7:], env.arms.high[7:], env.arms.target.clone()
    end, paid = torch.cat((arm, hand), dim=1), {}
    for step in range(steps):
        wanted = begin + (end - begin) * min(1.0, 1.5 * (step + 1) / steps)
        wanted[:, :4] -= 0.15 * env.arms.velocities()[:, :4]  # the servos damp the large joints little
        shift = 6.0 * (wanted - env.arms.target)[:, :7]
        share = 2.0 * (wanted[:, 7:] - low) / (high - low) - 1.0
        log = env.step(torch.cat((shift, share), dim=1)).log
        paid = {name: paid.get(name, 0.0) + value for name, value in log.items()}
    return paid


def test_objects_can_be_lifted_and_held() -> None:
    env = begun(REORIENTATION, 2, force_scale=0.0)
    scales, _ = objects.give(env.engine, GRASPS["scales"])
    above, at, closed, opened = (torch.tensor(GRASPS[name]) for name in ("above", "at", "closed", "open"))
    qpos = torch.tensor(env.engine.model.qpos0).repeat(2, 1)
    qpos[:, 2] = 0.53 + 0.025 * scales[:, 2]
    qpos[:, 3:7] = torch.tensor(GRASPS["orientation"])
    qpos[:, 7:] = torch.cat((above, opened), dim=1)
    everything = torch.ones(2, dtype=torch.bool)
    put(env, qpos)
    env.arms.hold(everything)
    env.kept["goal_position"][:] = torch.tensor([0.0, 0.0, 5.0])
    env.progress.new_object(everything, env.reach())
    reached = go(env, 90, at, opened)
    assert (reached["reward/reach"] > 0).all()
    go(env, 45, at, closed)
    lifted = go(env, 120, above, closed)
    assert lifted["reward/lift_bonus"].tolist() == [300.0, 300.0]
    held = go(env, 60, above, closed)
    assert (env.engine.qpos[:, 2] > 0.68).all()
    assert held["lifted"].tolist() == [60.0, 60.0]
    assert (held["held"] > 50).all()
    assert env.totals["held"].tolist() == (lifted["held"] + held["held"]).tolist()
    assert env.reach().amax(dim=1).max() < 0.2

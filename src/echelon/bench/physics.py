"""The physics of a rollout alone."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def physics_of(env: Any, actions: Tensor) -> Callable[[], None]:
    """Make the environments' next steps with `actions [H, N, A]`, and return a function that repeats their physics.

    It starts from the same states and sets the same controls, so it has the contacts of a rollout: simulations left to
    themselves come to rest, which is cheaper.
    """
    engine, controls = env.engine, []
    qpos, qvel = engine.qpos.clone(), engine.qvel.clone()
    with torch.inference_mode():
        for action in actions:
            env.step(action)
            controls.append(engine.ctrl.clone())

    def repeat() -> None:
        engine.qpos.copy_(qpos)
        engine.qvel.copy_(qvel)
        for control in controls:
            engine.ctrl.copy_(control)
            engine.step(env.substeps)

    return repeat

"""What a task needs from a physics engine: `[N, ...]` torch tensors of one model's simulations.

Every tensor is live: it shows the simulation's state, and a write to `qpos`, `qvel`, `ctrl`, `act`, `mocap_*` or
`xfrc_applied` is that state. After `step`, `sensordata` and all poses that were asked for by `read` describe the state
after the last substep, on every engine; only sensors of accelerations and contact forces (accelerometer, touch) are
those of the last substep itself, and zero in a simulation whose state was set since. Numbers are in the engine's own
precision, so tasks cast with `.float()`.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import mujoco
import torch
from torch import Tensor

State = Mapping[str, object]
"""What a checkpoint stores, as in `echelon.envs.contract`."""

MAX_SPEED = 1e4
"""Velocity in m/s or rad/s at which every engine counts a simulation as diverged.

In millions of steps of random actions joints stayed below 700, and a pinched object that spun off at 3,000 calmed down.
Beyond some thousands, speeds grow up to a thousandfold per step until MuJoCo stops at 1e10, and the rewards on the way
would spoil the running normalisers for good.
"""


class Engine(Protocol):
    """`num_sims` simulations of one model."""

    model: mujoco.MjModel
    num_sims: int
    device: torch.device

    qpos: Tensor
    qvel: Tensor
    ctrl: Tensor
    sensordata: Tensor
    mocap_pos: Tensor
    mocap_quat: Tensor
    xfrc_applied: Tensor

    bad: Tensor
    """`[N]` bool: simulations whose last step met a NaN, an exploding state or a MuJoCo error, or ended at `MAX_SPEED`
    or faster. They hold the default state until the task resets them."""
    overflow: Tensor
    """`[N]` int: how often contacts or constraints did not fit the engine's buffers, since the start."""

    def read(self, name: str) -> Tensor:
        """A live `[N, ...]` tensor of a derived MuJoCo field (`xpos`, `xquat`, `qM`, ...).

        Current after each `step` and `set_state` from this call on: an engine computes only fields that were read. So
        call it when the task is built, before steps are recorded as a CUDA graph.
        """
        ...

    def step(self, substeps: int) -> None:
        """Advance every simulation, then update sensors and the fields that were `read`."""
        ...

    def set_state(self, mask: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """Set the state of the masked simulations, everything else to its default, and update sensors as `step` does.

        `mask` is `[N]` bool; `qpos` and `qvel` are `[N, ...]`, read where the mask is set.
        """
        ...

    def expand(self, field: str) -> Tensor:
        """A model field as a live `[N, ...]` tensor of per-simulation values. Call `set_const` after writing it."""
        ...

    def set_const(self) -> None:
        """Recompute the constants that follow from expanded fields."""
        ...

    def fuse(self) -> None:
        """Compile what `step` and `set_state` do in torch into fewer kernels, at their next calls."""
        ...

    def capturing(self) -> AbstractContextManager[None]:
        """Entered while torch records its current stream as a CUDA graph that holds steps of this engine."""
        ...

    def state_dict(self) -> State:
        """The full simulator state."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned; on a CPU, the continuation is bit-identical."""
        ...

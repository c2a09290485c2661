"""What shows an environment that another library simulates with MuJoCo."""

from collections.abc import Callable
from typing import Any

import mujoco
import torch
from torch import Tensor


class MujocoView:
    """A `Simulated` that can only be shown: live tensors `[1, ...]` of one environment's `MjModel` and `MjData`.

    Without `data` of its own on this machine's CPU, an environment gives its `state(field)`: qpos, mocap_pos and
    mocap_quat, which are asked for whenever a field is read.
    """

    def __init__(self, model: Any, substeps: int, data: Any = None, state: Callable[[str], Any] | None = None) -> None:
        self.engine, self.model, self.substeps = self, model, substeps
        self._data, self._state = mujoco.MjData(model) if data is None else data, state

    def __getattr__(self, name: str) -> Tensor:
        return self.read(name)

    def read(self, name: str) -> Tensor:
        """A field of `MjData`."""
        if self._state is not None:
            for field in ("qpos", "mocap_pos", "mocap_quat"):
                if (own := getattr(self._data, field)).size:  # without mocap bodies mjlab has nothing to read on a CPU
                    own[:] = self._state(field)
            mujoco.mj_kinematics(self.model, self._data)
        return torch.from_numpy(getattr(self._data, name))[None]

    def expand(self, field: str) -> Tensor:
        """A field of `MjModel`."""
        return torch.from_numpy(getattr(self.model, field))[None]

"""The environments of one seed, in a task that several seeds share."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from echelon.device.capture import Generators
from echelon.envs.contract import Groups, State, Step
from echelon.tasks.mujoco_task import MujocoTask


class SeedSlice:
    """One seed's environments, with everything of an `Env` but `reset` and `step`, which are the whole task's."""

    def __init__(self, task: MujocoTask[Any], index: int, all_slices: list["SeedSlice"]) -> None:
        self._task, self._index, self._all_slices = task, index, all_slices
        assert isinstance(task.generator, Generators)
        self.generator = task.generator.each[index]
        self.num_envs = task.rng.each
        self.action_dim, self.obs_spec, self.device = task.action_dim, task.obs_spec, task.device
        self.episode_length, self.config = task.episode_length, task.config
        self._faults: list[dict[str, Any]] = []

    def reset(self) -> Groups:
        raise NotImplementedError("the whole task is reset")

    def step(self, action: Tensor) -> Step:
        raise NotImplementedError("the whole task is stepped")

    def take_faults(self) -> list[dict[str, Any]]:
        """Faults of this seed's simulations; those of other seeds are stored for their slices."""
        for fault in self._task.take_faults():
            index, environment = divmod(fault["environment"], self.num_envs)
            self._all_slices[index]._faults.append(fault | {"environment": environment})
        found, self._faults = self._faults, []
        return found

    def state_dict(self) -> State:
        """The state that a task of this seed alone would save."""
        return self._part(self._task.state_dict()) | {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned; the other seeds keep their state."""
        whole = self._task.state_dict()
        self._write(self._part(whole), state)
        self._task.load_state_dict(whole)
        self.generator.set_state(cast(Tensor, state["generator"]).cpu())

    def _part(self, state: Any, name: str = "") -> Any:
        """Views of this seed's numbers."""
        if isinstance(state, Mapping):
            return {key: self._part(value, key) for key, value in state.items()}
        return state[self._index] if name in self._task.curriculum else state.chunk(self._task.rng.seeds)[self._index]

    def _write(self, part: Any, state: Any) -> None:
        for name, value in part.items():
            if isinstance(value, torch.Tensor):
                value.copy_(state[name])
            else:
                self._write(value, state[name])


def seed_slices(task: MujocoTask[Any]) -> list[SeedSlice]:
    """The environments of each seed of a task that was made with several."""
    found: list[SeedSlice] = []
    found.extend(SeedSlice(task, index, found) for index in range(task.rng.seeds))
    return found

"""A task whose environments several seeds share: each seed's part, as the environment of a run by itself."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from echelon.device.randomness import Generators
from echelon.envs.contract import Groups, State, Step
from echelon.tasks.mujoco_task import MujocoTask


class Share:
    """One seed's environments: everything a run asks of them, but to be stepped, which the whole task is."""

    def __init__(self, task: MujocoTask[Any], index: int) -> None:
        self._task, self._index = task, index
        assert isinstance(task.generator, Generators)
        self.generator = task.generator.each[index]
        self.num_envs = task.chance.each
        self.action_dim, self.obs_spec, self.device = task.action_dim, task.obs_spec, task.device
        self.episode_length, self.config = task.episode_length, task.config
        self.siblings: Sequence[Share] = ()
        self._faults: list[dict[str, Any]] = []

    def reset(self) -> Groups:
        raise NotImplementedError("the whole task is reset")

    def step(self, action: Tensor) -> Step:
        raise NotImplementedError("the whole task is stepped")

    def take_faults(self) -> list[dict[str, Any]]:
        """Faults of this seed's simulations; those of other seeds are stored for their shares."""
        for fault in self._task.take_faults():
            index, environment = divmod(fault["environment"], self.num_envs)
            self.siblings[index]._faults.append(fault | {"environment": environment})
        found, self._faults = self._faults, []
        return found

    def state_dict(self) -> State:
        """The state that a task of this seed alone would save."""
        return self._part(self._task.state_dict()) | {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned; the other seeds stay as they are."""
        whole = self._task.state_dict()
        self._write(self._part(whole), state)
        self._task.load_state_dict(whole)
        self.generator.set_state(cast(Tensor, state["generator"]).cpu())

    def _part(self, state: Any, name: str = "") -> Any:
        """Views of this seed's numbers."""
        if isinstance(state, Mapping):
            return {key: self._part(value, key) for key, value in state.items()}
        return (
            state[self._index] if name in self._task.curriculum else state.chunk(self._task.chance.seeds)[self._index]
        )

    def _write(self, part: Any, state: Any) -> None:
        for name, value in part.items():
            if isinstance(value, torch.Tensor):
                value.copy_(state[name])
            else:
                self._write(value, state[name])


def shares(task: MujocoTask[Any]) -> list[Share]:
    """Every seed's part of a task that was made with several."""
    found = [Share(task, index) for index in range(task.chance.seeds)]
    for share in found:
        share.siblings = found
    return found

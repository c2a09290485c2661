"""The engine on CPU threads: MuJoCo's `Batch`, its arrays shared with torch.

The batch is persistent: every simulation keeps its `MjData`, so the position and velocity stages that a step computes
to make sensors current are the ones the next step starts from, and cost nothing.

Three failures are confined to the simulation that has them, and marked in `bad`. A NaN or exploding state is noticed by
MuJoCo at the next substep, or at the end of the call; MuJoCo resets that simulation (its `autoreset`, left on so that
no NaN reaches the collision code) and counts a warning. A MuJoCo error stops that simulation alone. A velocity of
`MAX_SPEED` or more is checked for here, at the end of the step.
"""

import ctypes
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast
from weakref import WeakSet

import mujoco
import numpy as np
import torch
from mujoco.batch import MODEL_FIELDS, Batch, SimulationError
from torch import Tensor

from echelon.errors import UserError
from echelon.sim import acceleration_sensors
from echelon.sim.contract import MAX_SPEED, State

_NONE, _VEL = (int(getattr(mujoco.mjtStage, f"mjSTAGE_{name}")) for name in ("NONE", "VEL"))
_BAD = [int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{name}")) for name in ("QPOS", "QVEL", "QACC", "CTRL")]
_FULL = [int(getattr(mujoco.mjtWarning, f"mjWARN_{name}FULL")) for name in ("CONTACT", "CNSTR")]
_logger = logging.getLogger(__name__)
_batches: "WeakSet[Batch]" = WeakSet()


def _keep_batches() -> None:
    """Never destroy batches in a forked process: they would wait for threads that exist only in the parent."""
    for batch in _batches:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(batch))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_batches)


class CpuEngine:
    """`num_sims` simulations of one model, in float64, on `threads` threads (0: every core).

    Results do not depend on the number of threads. Memory is one `MjData` per simulation: a model's `<size memory>`
    bounds it, and pages of it that are never used are never resident.
    """

    device = torch.device("cpu")

    def __init__(self, model: mujoco.MjModel, num_sims: int, threads: int = 0) -> None:
        self.model, self.num_sims = model, num_sims
        self._batch = Batch(model, num_sims, threads, persistent=True)
        _batches.add(self._batch)
        self._warnings: np.ndarray = self._batch.warning  # [N, kinds, (last info, count)], live
        self.qpos, self.qvel, self.ctrl = self.read("qpos"), self.read("qvel"), self.read("ctrl")
        self.sensordata, self.xfrc_applied = self.read("sensordata"), self.read("xfrc_applied")
        self.mocap_pos, self.mocap_quat = self.read("mocap_pos"), self.read("mocap_quat")
        self._late = torch.from_numpy(acceleration_sensors(model))
        self.bad = torch.zeros(num_sims, dtype=torch.bool)
        self.overflow = torch.zeros(num_sims, dtype=torch.int64)
        self._restart(np.arange(num_sims))

    def read(self, name: str) -> Tensor:
        return _shared(self._batch.bind(name))

    def step(self, substeps: int) -> None:
        """Advance every simulation and update sensors and poses; mark, count and reset simulations that failed."""
        self._warnings[:] = 0
        failed = self._call(lambda: self._batch.step(nstep=substeps, stage=_VEL))
        counts = self._warnings[:, :, 1]
        slow = np.abs(self.qvel.numpy()) < MAX_SPEED
        if not len(failed) and not counts.any() and slow.all():
            self.bad.zero_()
            return
        bad = np.any(counts[:, _BAD] > 0, axis=1) | ~slow.all(axis=1)
        bad[failed] = True
        self.bad.copy_(torch.from_numpy(bad))
        self.overflow += torch.from_numpy(counts[:, _FULL].sum(axis=1))
        self._restart(np.flatnonzero(bad))

    def set_state(self, mask: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        self._restart(mask.nonzero()[:, 0].numpy(), qpos, qvel)

    def expand(self, field: str) -> Tensor:
        return _shared(self._batch.expand(field))

    def set_const(self) -> None:
        self._batch.set_const()

    def fuse(self) -> None:
        """Do nothing: a step is MuJoCo's alone."""

    def capturing(self) -> AbstractContextManager[None]:
        """Does nothing: there are no CUDA graphs on a CPU."""
        return nullcontext()

    def state_dict(self) -> State:
        """Rows of all state MuJoCo integrates (warm start included), per-simulation model values, the two counters."""
        fields = {name: self._batch.expanded(name) for name in sorted(MODEL_FIELDS)}
        return {
            "rows": torch.from_numpy(self._batch.state).clone(),
            "model": {name: torch.tensor(values) for name, values in fields.items() if values is not None},
            "sensordata": self.sensordata.clone(),
            "bad": self.bad.clone(),
            "overflow": self.overflow.clone(),
        }

    def load_state_dict(self, state: State) -> None:
        """The continuation is bit-identical, whatever this engine did before."""
        saved = cast(Mapping[str, Any], state)
        rows = torch.from_numpy(self._batch.state)
        if (there := saved["rows"].shape) != (here := rows.shape):
            sizes = f"{there[0]} simulations of {there[1]} numbers and this engine {here[0]} of {here[1]}"
            raise UserError(f"the saved state holds {sizes}; use the task settings and num_envs it was saved with")
        for name in MODEL_FIELDS:
            if name in saved["model"]:
                self.expand(name).copy_(saved["model"][name])
            elif self._batch.expanded(name) is not None:  # expanded here, but not where it was saved
                owner, attribute = (self.model.opt, name[4:]) if name.startswith("opt.") else (self.model, name)
                self._batch.expand(name)[...] = getattr(owner, attribute)
        # The persistent MjData may hold more than the saved rows: reset them, so that only the rows count.
        self._call(lambda: self._batch.reset(stage=_NONE))
        rows.copy_(saved["rows"])
        self._call(lambda: self._batch.forward(stage=_VEL))
        self.sensordata.copy_(saved["sensordata"])  # acceleration sensors do not follow from the rows
        self.bad.copy_(saved["bad"])
        self.overflow.copy_(saved["overflow"])

    def _restart(self, ids: np.ndarray, qpos: Tensor | None = None, qvel: Tensor | None = None) -> None:
        """Reset these simulations to the default state or to the given rows, and update their sensors."""
        if not len(ids):
            return
        rows = torch.from_numpy(ids)
        self._call(lambda: self._batch.reset(ids, stage=_NONE))
        if qpos is not None and qvel is not None:
            self.qpos[rows] = qpos[rows].double()
            self.qvel[rows] = qvel[rows].double()
        self._call(lambda: self._batch.forward(ids, stage=_VEL))
        self.sensordata[rows] = self.sensordata[rows].masked_fill(self._late, 0.0)

    def _call(self, run: Callable[[], None]) -> np.ndarray:
        """Run a batch call, MuJoCo's warnings logged; returns the ids of simulations in which it raised an error."""
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(_logger.debug)  # otherwise it prints one per bad state, and writes a file
        try:
            run()
        except SimulationError as error:
            _logger.debug("%s", error)
            return error.ids
        finally:
            mujoco.set_mju_user_warning(before)
        return np.empty(0, np.intp)


def _shared(array: np.ndarray) -> Tensor:
    """A tensor over the array's memory. Torch has no read-only tensors, so derived fields are marked writable."""
    view = array[...]
    view.flags.writeable = True
    return torch.from_numpy(view)

"""The engine on a CUDA GPU: MuJoCo Warp, its arrays shared with torch.

All work runs on torch's current stream and nothing waits for the device, so a whole rollout can be captured as one CUDA
graph. A step is `substeps` times forward dynamics and integration, then, if the task reads poses or sensors, kinematics
and sensors once more at the new state.
"""

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast

import mujoco
import torch
from torch import Tensor

from echelon.device.compile_progress import announced
from echelon.device.fusion import fused
from echelon.errors import UserError, install
from echelon.sim import acceleration_sensors
from echelon.sim.contract import MAX_SPEED, State

try:
    import mujoco_warp as mjw
    import warp as wp

    from echelon.sim import newton
    from echelon.sim.substep import PARTS, Substep
except ImportError as missing:
    raise UserError("training on CUDA needs MuJoCo Warp, which is not installed; " + install("gpu")) from missing

MAX_POSITION = 1e10
"""Position at which a simulation counts as diverged: MuJoCo's own limit. For velocities it is `MAX_SPEED`."""
_CAPACITY = sum(int(mjw.OverflowType[name]) for name in ("NEFC", "NJMAX_NNZ", "BROADPHASE", "NARROWPHASE", "CCD"))
"""Overflow bits that mean lost contacts or constraints; a solver at its iteration limit is not one of them."""
_DERIVED = ("geom_aabb", "geom_rbound", "body_subtreemass", "body_invweight0", "dof_invweight0", "actuator_acc0")
"""Model fields that `set_const` computes. They must be expanded first, or all simulations would share one value."""
_STATE = ("qpos", "qvel", "act", "qacc_warmstart", "ctrl", "xfrc_applied", "mocap_pos", "mocap_quat", "time")
_KEPT = ("sensordata", "bad", "overflow", "limited")
"""Attributes that are saved with the state."""
_BY_THE_STEP = (*_STATE, "overflow", "solver_niter")
"""Fields that a step updates by itself. All others follow from the state and need `_refresh`."""


class WarpEngine:
    """`num_sims` simulations of one model, in float32.

    `contacts` and `constraints` are buffer sizes per simulation; None leaves them to MuJoCo Warp. `fused` names
    the parts of a substep that our kernels compute where they can; the others are MuJoCo Warp's.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        num_sims: int,
        device: torch.device,
        contacts: int | None = None,
        constraints: int | None = None,
        fused: Collection[str] = PARTS,
    ) -> None:
        wp.config.log_level = wp.LOG_WARNING  # it prints a line per kernel module otherwise
        wp.init()
        self.model, self.num_sims, self.device = model, num_sims, device
        self._warp_device = wp.device_from_torch(str(device))
        self._streams: dict[int, Any] = {}
        self._expanded: dict[str, Tensor] = {}
        self._shared: dict[str, Tensor] = {}
        """Expanded fields as they were for all simulations, `[1, ...]`."""
        self._stale = False
        """Whether a field was expanded since kernels were compiled."""
        late = acceleration_sensors(model)
        self._has_readers = not late.all()
        """Whether `_refresh` is needed: for sensors of positions or velocities, or for fields that were `read`."""
        with self._on_stream():
            dense = newton.dense(model) if "newton" in fused else model
            self._load(dense, contacts, constraints)
            if dense is not model and newton.unsupported(self._model, self._data):
                self._load(model, contacts, constraints)
            self.substep = Substep(self._model, self._data, fused)
        if device.type == "cuda":
            print(f"physics: {self.substep}", file=sys.stderr, flush=True)
        self._forces_read = bool(late.any())
        """Whether sensors, or fields that were `read`, need all that forward dynamics computes."""
        self._state = state = {name: self._field(name) for name in _STATE}
        # The same tensors: compiled code does not know which share memory, and would read what was there before.
        self.qpos, self.qvel, self.ctrl = state["qpos"], state["qvel"], state["ctrl"]
        self.xfrc_applied, self.sensordata = state["xfrc_applied"], self._field("sensordata")
        self.mocap_pos, self.mocap_quat = state["mocap_pos"], state["mocap_quat"]
        self.bad = torch.zeros(num_sims, dtype=torch.bool, device=device)
        self.overflow = torch.zeros(num_sims, dtype=torch.int64, device=device)
        self.limited = torch.zeros(num_sims, dtype=torch.int64, device=device)
        """`[N]` int: steps in which the solver or its line search stopped at its iteration limit."""
        self._bits = self._field("overflow")
        self._defaults = {name: x[:1].clone() for name, x in state.items()}
        self._late = torch.tensor(late, device=device)
        self._compile()

    def _load(self, model: mujoco.MjModel, contacts: int | None, constraints: int | None) -> None:
        self._model = mjw.put_model(model)
        self._model.opt.warn_overflow = 0  # the default prints from the device
        self._data = mjw.make_data(model, nworld=self.num_sims, nconmax=contacts, njmax=constraints)

    def _compile(self) -> None:
        """Compile and load all kernels by one step whose effects are undone, with a progress message."""
        live = (*self._state.values(), *(getattr(self, name) for name in _KEPT))
        before = [x.clone() for x in live]
        with announced(Path(wp.config.kernel_cache_dir), "for this scene"):
            self.step(1)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        for x, value in zip(live, before, strict=True):
            x.copy_(value)
        self._refresh()

    def read(self, name: str) -> Tensor:
        if name not in (*_BY_THE_STEP, "sensordata"):
            self._has_readers = self._forces_read = True
            self._refresh()
        return self._field(name)

    def _field(self, name: str) -> Tensor:
        return wp.to_torch(getattr(self._data, name))

    def step(self, substeps: int) -> None:
        """Advance every simulation and update the fields that are read; mark and reset simulations that failed."""
        if self._stale:  # some kernels are compiled differently for expanded fields
            self._stale = False
            self._compile()
        m, d = self._model, self._data
        with self._on_stream():
            for substep in range(substeps):
                last = substep == substeps - 1
                self.substep.forward(everything=last and self._forces_read)
                if last and self.model.nsensordata:  # sensors of forces, which belong to this substep
                    d.sensordata.zero_()  # touch sensors add up contacts
                    if m.sensor_rne_postconstraint:
                        mjw.rne_postconstraint(m, d)
                    mjw.sensor_acc(m, d, skip_rne_postconstraint=True)
                self.substep.integrate()
        self._quarantine()
        if self._has_readers:  # the next substep does not need what they read
            self._refresh()

    def _quarantine(self) -> None:
        """Count overflows, mark simulations that are NaN or diverged, and reset those to the default state."""
        self.overflow += (self._bits & _CAPACITY) != 0
        self.limited += (self._bits & ~_CAPACITY) != 0
        self._bits.zero_()
        fine = (self.qpos.abs() < MAX_POSITION).all(1) & (self.qvel.abs() < MAX_SPEED).all(1)  # NaN compares false
        self.bad.copy_(~fine)
        self._restart(self.bad)

    def _refresh(self) -> None:
        """Poses, velocities and their sensors at the current state."""
        with self._on_stream():
            self.substep.refresh()
            mjw.sensor_pos(self._model, self._data)
            mjw.sensor_vel(self._model, self._data)

    def _restart(self, mask: Tensor) -> None:
        """Reset the masked simulations to the default state."""
        for name, x in self._state.items():
            chosen = mask.view(-1, *[1] * (x.dim() - 1))
            x.copy_(torch.where(chosen, self._defaults[name], x))
        self.sensordata.masked_fill_(mask[:, None] & self._late, 0.0)

    def set_state(self, mask: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        self._place(mask, qpos, qvel)
        if self._has_readers:
            self._refresh()

    def _place(self, mask: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        self._restart(mask)
        self.qpos.copy_(torch.where(mask[:, None], qpos, self.qpos))
        self.qvel.copy_(torch.where(mask[:, None], qvel, self.qvel))

    def fuse(self) -> None:
        """Compile what a step does in torch."""
        self._quarantine = fused(self._quarantine, self.device)
        self._place = fused(self._place, self.device)

    def expand(self, field: str) -> Tensor:
        if field not in self._expanded:
            owner, name = (self._model.opt, field[4:]) if field.startswith("opt.") else (self._model, field)
            shared = getattr(owner, name)
            values = wp.to_torch(shared)
            self._shared[field] = values[:1].clone()
            values = values.expand(self.num_sims, *values.shape[1:]).clone()
            setattr(owner, name, wp.from_torch(values, dtype=shared.dtype))
            self._expanded[field] = values
            self._stale = True
        return self._expanded[field]

    def set_const(self) -> None:
        for field in _DERIVED:
            self.expand(field)
        with self._on_stream():
            mjw.set_const(self._model, self._data)

    def state_dict(self) -> State:
        """All state MuJoCo integrates (warm start included), per-simulation model values, and the counters."""
        return {
            "model": {name: x.clone() for name, x in self._expanded.items()},
            "state": {name: x.clone() for name, x in self._state.items()},
            **{name: getattr(self, name).clone() for name in _KEPT},
        }

    def load_state_dict(self, state: State) -> None:
        """On CUDA the continuation agrees up to rounding."""
        saved = cast(Mapping[str, Any], state)
        if saved["state"]["qpos"].shape != self.qpos.shape:
            there, here = tuple(saved["state"]["qpos"].shape), tuple(self.qpos.shape)
            sizes = f"the saved state holds {there} positions and this engine {here}"
            raise UserError(f"{sizes}; use the task settings and num_envs it was saved with")
        for name in self._expanded | saved["model"]:
            self.expand(name).copy_(saved["model"].get(name, self._shared.get(name)))
        for name, x in self._state.items():
            x.copy_(saved["state"][name])
        self._refresh()
        for name in _KEPT:
            getattr(self, name).copy_(saved[name])

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Tell Warp that torch is capturing its current stream into a CUDA graph."""
        stream = self._stream()
        wp.capture_begin(stream=stream, external=True)
        try:
            yield
        finally:
            wp.capture_end(stream=stream)

    def _on_stream(self) -> AbstractContextManager[Any]:
        """Launch Warp's kernels on torch's current stream."""
        if self.device.type == "cuda":
            return wp.ScopedStream(self._stream(), sync_enter=False, sync_exit=False)
        return wp.ScopedDevice(self._warp_device)

    def _stream(self) -> Any:
        """Torch's current stream as a Warp stream; one object per stream, because Warp marks it as being captured."""
        current = torch.cuda.current_stream(self.device)
        if current.cuda_stream not in self._streams:
            self._streams[current.cuda_stream] = wp.stream_from_torch(current)
        return self._streams[current.cuda_stream]

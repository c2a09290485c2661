"""Keeps the first simulations that went wrong: state and control before the step, and number.

It never synchronises with the host, so that steps can be recorded as a CUDA graph: every step writes a few simulations,
bad or not, into a table whose last row collects those that are not needed.
"""

from typing import Any

import torch
from torch import Tensor

from echelon.sim.contract import Engine

MAX_FAULTS = 8
"""Faults that are kept at most."""
SAVED_FIELDS = ("qpos", "qvel", "ctrl", "mocap_pos", "mocap_quat")
"""What is kept of a simulation, as it was before the step."""


class FaultLog:
    """Keeps the first `MAX_FAULTS` simulations that were quarantined."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._shapes = [getattr(engine, name).shape[1:] for name in SAVED_FIELDS]
        width = sum(shape.numel() for shape in self._shapes)
        self._rows = torch.zeros(MAX_FAULTS + 1, width, dtype=engine.qpos.dtype, device=engine.device)
        self._ids = torch.zeros(MAX_FAULTS + 1, dtype=torch.int64, device=engine.device)
        self._count = torch.zeros((), dtype=torch.int64, device=engine.device)
        self._rank = torch.arange(engine.num_sims, 0, -1, device=engine.device)
        """Highest for the first simulation, and never 0."""
        self._slots = torch.arange(min(MAX_FAULTS, engine.num_sims), device=engine.device)
        self._taken = 0

    def before(self) -> Tensor:
        """`[N, W]`: all simulations before a step, their controls set."""
        return torch.cat([getattr(self._engine, name).flatten(1).to(self._rows.dtype) for name in SAVED_FIELDS], dim=1)

    def keep(self, before: Tensor) -> None:
        """Keep those that were quarantined in the step."""
        bad = self._engine.bad
        if bad.device.type == "cpu" and not bad.any():
            return
        first = torch.where(bad, self._rank, 0).topk(len(self._slots))
        place = torch.where(first.values > 0, self._count + self._slots, MAX_FAULTS).clamp(max=MAX_FAULTS)
        self._rows.index_copy_(0, place, before.index_select(0, first.indices))
        self._ids.index_copy_(0, place, first.indices)
        self._count.add_(bad.sum()).clamp_(max=MAX_FAULTS)

    def take(self) -> list[dict[str, Any]]:
        """Return faults since the last call, as NumPy arrays. Waits for the device."""
        first, self._taken = self._taken, int(self._count)
        found: list[dict[str, Any]] = []
        fields: Any = self._engine.state_dict()["model"] if first < self._taken else {}
        for row in range(first, self._taken):
            number = int(self._ids[row])
            parts = self._rows[row].cpu().split([shape.numel() for shape in self._shapes])
            state = zip(SAVED_FIELDS, parts, self._shapes, strict=True)
            found.append({"environment": number} | {name: x.view(shape).numpy() for name, x, shape in state})
            found[-1] |= {f"model/{name}": x[number].cpu().numpy() for name, x in fields.items()}
        return found

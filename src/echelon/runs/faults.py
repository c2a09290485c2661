"""`diagnostics/fault-*.npz`: the first simulations of a run that went wrong, each as it was before the step."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from echelon.envs.contract import Simulated
from echelon.errors import UserError
from echelon.runs.durable import replace_durably, writing
from echelon.runs.folder import RunFolder
from echelon.tasks import maker

MAX_FAULTS = 8
"""A run keeps the first ones: later ones often follow from them."""
REOPEN = "from echelon.runs.faults import open_fault; env = open_fault({!r}); env.engine.step(1); print(env.engine.bad)"
"""Stored in every file as `reopen`: the step that went wrong, taken again."""


def keep_faults(folder: RunFolder, iteration: int, faults: Sequence[dict[str, Any]]) -> None:
    """Write a file per fault until the run has `MAX_FAULTS`. Each fault names the `policy` that drove it."""
    diagnostics = folder.path / "diagnostics"
    kept = len(list(diagnostics.glob("fault-*.npz")))
    for number, fault in enumerate(faults[: max(0, MAX_FAULTS - kept)], kept):
        path, buffer = diagnostics / f"fault-{number}.npz", io.BytesIO()
        np.savez(buffer, iteration=iteration, reopen=REOPEN.format(str(path)), **fault)
        with writing(path):
            diagnostics.mkdir(exist_ok=True)
            replace_durably(path, buffer.getvalue())


def open_fault(path: str | Path) -> Simulated:
    """Build the run's task with one simulation on the CPU, in the state that a fault file holds."""
    path = Path(path)
    config = RunFolder.open(path.absolute().parents[1]).config
    env = maker(config)(1, torch.device("cpu"), config.seed)
    if not isinstance(env, Simulated):
        raise UserError(f"{config.task} has no physics to look at")
    engine = env.engine
    try:
        with np.load(path, allow_pickle=False) as file:
            state = {name: torch.from_numpy(file[name]) for name in file.files if name != "reopen"}
        for name in (name for name in state if name.startswith("model/")):
            engine.expand(name.removeprefix("model/"))[0] = state[name]
        engine.set_state(torch.tensor([True]), state["qpos"][None], state["qvel"][None])
        for name in ("ctrl", "mocap_pos", "mocap_quat"):
            getattr(engine, name)[0] = state[name]
    except Exception as error:  # the file is untrusted
        raise UserError(f"{path} is damaged, or no fault of {config.task} ({type(error).__name__})") from None
    return env

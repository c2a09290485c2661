"""Simulations that went wrong, played again from the states that were kept: substep by substep, in 3D."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from echelon.envs.contract import Simulated
from echelon.errors import UserError
from echelon.runs.faults import read_faults
from echelon.runs.folder import RunFolder
from echelon.runs.replays import Episode, Replay
from echelon.sim.faults import SAVED_FIELDS
from echelon.tasks import maker
from echelon.viewing.scene import Looks, body_names, camera, primitives

FRAME_S = 0.2
"""How long each substep is shown: what went wrong took milliseconds."""
FAR = 1e3
"""Metres beyond which nothing is drawn."""


def replay_faults(folder: RunFolder) -> tuple[Replay, list[str]]:
    """All kept faults of a run as episodes of one replay, and a sentence about each."""
    config = folder.config
    env = maker(config)(1, torch.device("cpu"), config.seed)
    if not isinstance(env, Simulated):
        raise UserError(f"{config.task} has no physics to look at")
    episodes, sentences = [], []
    for number, fault in enumerate(read_faults(folder)):
        try:
            poses, sentence = _play(env, fault)
            name = f"iteration {int(fault['iteration'])}, environment {int(fault['environment'])}"
        except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
            raise UserError(
                f"fault {number} of {folder.path} does not fit {config.task} ({type(error).__name__}); was it changed?"
            ) from None
        looks = Looks.of(env.engine)
        geoms = primitives(env.engine.model, looks)
        episodes.append(Episode(number, name, 0.0, len(poses) - 1, True, geoms, poses, "failed"))
        sentences.append(f"{name}, policy {fault.get('policy')}: {sentence}")
    engine = env.engine
    view = camera(engine.model, engine.model.qpos0)
    task, algo, seed = config.task, config.algo, config.seed
    last = max(int(fault["iteration"]) for fault in read_faults(folder))
    replay = Replay(folder.name, task, algo, last, seed, 0, FRAME_S, body_names(engine.model), view, tuple(episodes))
    return replay, sentences


def _play(env: Simulated, fault: dict[str, Any]) -> tuple[np.ndarray, str]:
    """Poses `[frames, bodies, 7]` of the state before the step and after each substep until it goes wrong; and how."""
    engine = env.engine
    xpos, xquat = engine.read("xpos"), engine.read("xquat")
    for name, values in fault["model"].items():
        engine.expand(name)[0] = _tensor(values)
    engine.set_const()
    engine.set_state(torch.tensor([True]), _tensor(fault["qpos"])[None], _tensor(fault["qvel"])[None])
    for name in SAVED_FIELDS[2:]:
        live = getattr(engine, name)[0]
        live.copy_(_tensor(fault[name]).reshape(live.shape))
    poses, fastest = [torch.cat((xpos[0], xquat[0]), dim=-1).numpy().copy()], engine.qvel[0].abs().max().item()
    controls = np.asarray(_tensor(fault["ctrl"]))
    if not np.isfinite(controls).all():
        return np.stack(poses * 2), "its controls were not finite, so the policy or the task computed no action"
    for substep in range(1, env.substeps + 1):
        engine.step(1)
        if bool(engine.bad[0]):
            sentence = f"goes wrong again in substep {substep} of {env.substeps}, after a velocity of {fastest:.3g}"
            return np.stack(poses * (2 if len(poses) == 1 else 1)), sentence
        fastest = max(fastest, engine.qvel[0].abs().max().item())
        pose = torch.cat((xpos[0], xquat[0]), dim=-1).numpy().copy()
        if not np.isfinite(pose).all() or np.abs(pose[:, :3]).max() > FAR:
            break
        poses.append(pose)
    return np.stack(poses), f"does not go wrong again from the state that was kept; fastest velocity {fastest:.3g}"


def _tensor(values: Sequence[Any]) -> torch.Tensor:
    """Numbers from JSON, NaN for null."""
    return torch.from_numpy(np.array(values, dtype=np.float64))

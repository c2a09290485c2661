"""Record an evaluation episode of each policy: poses for the browser, states for the renderer."""

from dataclasses import dataclass, fields, replace
from typing import Any

import mujoco
import numpy as np
import torch

from echelon.envs.contract import MakeEnv, Step
from echelon.evaluation.trained import Trained
from echelon.runs.checkpoint import Which
from echelon.runs.folder import RunFolder
from echelon.runs.replays import Episode, Outcome, Replay, replay_path, write_replay
from echelon.viewing.acting import Choice, PolicyRunner
from echelon.viewing.scene import Appearance, body_names, camera, primitives

FRAMES_PER_SECOND = 30.0
"""Approximate frames per simulated second; a frame is a whole number of control steps."""
MAX_RECORDING_S = 60.0
"""Simulated seconds after which a recording stops. Episodes whose time limit restarts at every goal can be long."""
SEED = 1000
"""The same default as `echelon evaluate`: episodes that were not seen in training."""


@dataclass(frozen=True, kw_only=True)
class Tape(Episode):
    """A recorded episode, with what MuJoCo's renderer needs; `geoms` are those of its replay."""

    model: mujoco.MjModel
    appearance: Appearance
    frame_s: float
    seconds: float
    """Simulated time."""
    qpos: np.ndarray
    """`[frames, nq]`"""
    mocap: np.ndarray
    """`[frames, mocap bodies, 7]`"""

    def episode(self) -> Episode:
        """The part that a replay shows."""
        shown: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(Episode)}
        shown["geoms"] = primitives(self.model, self.appearance)
        return Episode(**shown)


def record_replay(
    folder: RunFolder,
    policies: str = "all",
    seed: int = SEED,
    checkpoint: Which = "newest",
    make_env: MakeEnv | None = None,
) -> Replay:
    """Record episodes of `leader`, `all` or a policy's number, and write the replay into the run folder."""
    trained = Trained.load(folder, checkpoint, make_env)
    replay = to_replay(folder.name, trained, seed, record(trained, policies, seed))
    write_replay(replay, replay_path(folder))
    return replay


def record(trained: Trained, policies: str = "all", seed: int = SEED) -> tuple[Tape, ...]:
    """Record an episode of each chosen policy. All have the same seed, hence the same start."""
    chosen = trained.chosen(policies)
    tapes = (record_episode(PolicyRunner(trained, policy, seed), trained.name(policy)) for policy in chosen)
    return tuple(replace(tape, iteration=trained.iteration) for tape in tapes)


def record_episode(runner: PolicyRunner, name: str) -> Tape:
    """Record the policy's first episode, at most `MAX_RECORDING_S` of it."""
    engine = runner.simulated.engine
    stride = max(1, round(1 / (FRAMES_PER_SECOND * runner.control_s)))
    xpos, xquat = engine.read("xpos"), engine.read("xquat")
    markers = np.flatnonzero(engine.model.body_mocapid >= 0)
    qpos, mocap, bodies = [], [], []
    series = Series()
    total, length, successes = 0.0, 0, 0.0
    runner.reset()  # after `read`, because it updates what was read
    appearance = Appearance.of(engine)
    while True:
        begins_frame = length % stride == 0
        if begins_frame:
            qpos.append(engine.qpos[0].numpy().copy())
            mocap.append(torch.cat((engine.mocap_pos[0], engine.mocap_quat[0]), dim=-1).numpy())
            bodies.append(torch.cat((xpos[0], xquat[0]), dim=-1).numpy())
            # Tasks move goal markers after the physics step, so their poses in `xpos` are one step old.
            bodies[-1][markers] = mocap[-1][engine.model.body_mocapid[markers]]
        choice, step = runner.choice(), runner.step()
        series.add(choice, step, begins_frame)
        total, length = total + float(step.reward), length + 1
        if bool(step.terminated | step.truncated) or length * runner.control_s >= MAX_RECORDING_S:
            break
        successes = _successes(step)
    outcome = _outcome(step, successes)
    return Tape(
        policy=runner.policy,
        name=name,
        total_return=total,
        length=length,
        failed=outcome == "failed",
        geoms=(),
        poses=np.stack(bodies),
        outcome=outcome,
        series=series.arrays(),
        model=engine.model,
        appearance=appearance,
        frame_s=stride * runner.control_s,
        seconds=length * runner.control_s,
        qpos=np.stack(qpos),
        mocap=np.stack(mocap),
    )


class Series:
    """Rewards, actions and the distance to the leader along an episode, a value per frame.

    Rewards are summed over the control steps of a frame, the others are those at its beginning.
    """

    def __init__(self) -> None:
        self._frames: list[dict[str, float]] = []

    def add(self, choice: Choice, step: Step, begins: bool) -> None:
        """A control step, which may begin a frame."""
        if begins:
            actions = {f"action/{k}": float(x) for k, x in enumerate(choice.action)}
            self._frames.append({"kl": choice.kl, **actions})
        frame = self._frames[-1]
        terms = {name: x for name, x in step.log.items() if name.startswith("reward/")}
        for name, value in {"reward": step.reward, **terms}.items():
            frame[name] = frame.get(name, 0.0) + float(value)

    def arrays(self) -> dict[str, np.ndarray]:
        """`[frames]` by name."""
        names = dict.fromkeys(name for frame in self._frames for name in frame)
        found = {name: np.array([frame.get(name, 0.0) for frame in self._frames]) for name in names}
        return {name: values for name, values in found.items() if np.isfinite(values).all()}


def _outcome(step: Step, successes: float) -> Outcome:
    """How the recording ended, from its last step and the successes before it.

    Some tasks end an episode when it succeeds. A hand that drops the cube has failed, whatever it reached before: only
    a success in the last step itself can be what ended the episode.
    """
    if bool(step.terminated):
        return "succeeded" if _successes(step) > successes else "failed"
    return "time limit" if bool(step.truncated) else "cut"


def _successes(step: Step) -> float:
    """Successes of the episode so far; 0 if the task does not count them."""
    found = step.log.get("episode/successes")
    return 0.0 if found is None else float(found)


def to_replay(run: str, trained: Trained, seed: int, tapes: tuple[Tape, ...]) -> Replay:
    """The tapes as a replay for the browser; they may be of several checkpoints, `trained` being the last."""
    first = tapes[0]
    return Replay(
        run=run,
        task=trained.config.task,
        algo=trained.config.algo,
        iteration=trained.iteration,
        seed=seed,
        leader=trained.leader,
        frame_s=first.frame_s,
        bodies=body_names(first.model),
        camera=camera(first.model, first.qpos[0]),
        episodes=tuple(tape.episode() for tape in tapes),
    )

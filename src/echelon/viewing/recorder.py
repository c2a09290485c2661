"""Let a policy act in a single environment, and record its episode: poses for the browser, states for the renderer."""

from dataclasses import dataclass, fields

import mujoco
import numpy as np
import torch
from torch import Tensor

from echelon.diagnostics import gaussian_kl
from echelon.envs.contract import Simulated, Step
from echelon.errors import UserError
from echelon.rollout.acting import Player
from echelon.runs.replays import Episode, Outcome, Replay
from echelon.runs.trained import Trained
from echelon.viewing.scene import camera, geoms, meshes, shown_model

FRAMES_PER_SECOND = 30.0
"""Approximate frames per simulated second; a frame is a whole number of control steps."""
MAX_RECORDING_S = 60.0
"""Simulated seconds after which a recording stops. Episodes whose time limit restarts at every goal can be long."""
SEED = 1000
"""The same default as `echelon evaluate`: episodes that were not seen in training."""


class PolicyRunner:
    """One policy acting in one environment, at its means unless `generator` is set. Call `reset` first."""

    def __init__(self, trained: Trained, policy: int, seed: int) -> None:
        self.env = trained.make_env(1, torch.device("cpu"), seed)
        shown = drawing() if (drawing := getattr(self.env, "drawing", None)) else self.env
        if not isinstance(shown, Simulated):
            raise UserError(f"{type(self.env).__name__} is not simulated by MuJoCo, so there are no bodies to show")
        self.engine = shown.engine
        self.control_s = shown.substeps * float(self.engine.model.opt.timestep)
        """Simulated seconds per control step."""
        self.generator: torch.Generator | None = None
        self._player = Player(self.env, trained.actor(policy))
        self._leader_state = torch.zeros_like(self._player.state)
        """Recurrent state of the leader, had it seen the same observations."""
        self.use(trained, policy)

    def use(self, trained: Trained, policy: int) -> None:
        """Act by another policy, or by one of another checkpoint, from now on."""
        self.trained, self.policy = trained, policy
        self._player.actor, self._leader = trained.actor(policy), trained.actor(trained.leader)

    def reset(self) -> None:
        """Start an episode."""
        self._player.reset()
        self._leader_state.zero_()

    @torch.no_grad()
    def choice(self) -> tuple[Tensor, float]:
        """The next action at the policy's mean, `[A]`, and the KL divergence from the policy to the leader in this
        state. Call it once before every step, because it advances the leader's memory."""
        own = self._player.actor.evaluate(self._player.obs, self._player.state)
        leader = self._leader.evaluate(self._player.obs, self._leader_state)
        self._leader_state = leader.state
        kl = gaussian_kl(own.mean[0], own.log_std, leader.mean[0], leader.log_std)
        return own.mode[0, 0].clamp(-1, 1), float(kl)

    def step(self) -> Step:
        """One control step. If it ends the episode, the environment has already started the next."""
        step = self._player.step(self.generator)
        if bool(step.terminated | step.truncated):
            self._leader_state.zero_()
        return step


@dataclass(frozen=True, kw_only=True)
class Tape(Episode):
    """A recorded episode, with what MuJoCo's renderer needs; `to_replay` adds its `geoms`."""

    model: mujoco.MjModel
    """With the sizes and colours of the recorded environment."""
    frame_s: float
    seconds: float
    """Simulated time."""
    qpos: np.ndarray
    """`[frames, nq]`"""
    mocap: np.ndarray
    """`[frames, mocap bodies, 7]`"""


def record(trained: Trained, policies: str = "all", seed: int = SEED) -> tuple[Tape, ...]:
    """Record an episode of each chosen policy. All have the same seed, so the same start."""
    return tuple(record_episode(PolicyRunner(trained, policy, seed)) for policy in trained.chosen(policies))


def record_episode(runner: PolicyRunner) -> Tape:
    """Record the policy's first episode, at most `MAX_RECORDING_S` of it."""
    engine, trained = runner.engine, runner.trained
    stride = max(1, round(1 / (FRAMES_PER_SECOND * runner.control_s)))
    xpos, xquat = engine.read("xpos"), engine.read("xquat")
    markers = np.flatnonzero(engine.model.body_mocapid >= 0)
    qpos, mocap, bodies = [], [], []
    series: list[dict[str, float]] = []
    total, length, successes = 0.0, 0, 0.0
    runner.reset()  # after `read`, because it updates what was read
    model = shown_model(engine)
    while True:
        begins_frame = length % stride == 0
        if begins_frame:
            qpos.append(engine.qpos[0].numpy().copy())
            mocap.append(torch.cat((engine.mocap_pos[0], engine.mocap_quat[0]), dim=-1).numpy())
            bodies.append(torch.cat((xpos[0], xquat[0]), dim=-1).numpy())
            # Tasks move goal markers after the physics step, so their poses in `xpos` are one step old.
            bodies[-1][markers] = mocap[-1][engine.model.body_mocapid[markers]]
        (action, kl), step = runner.choice(), runner.step()
        if begins_frame:
            series.append({"kl": kl} | {f"action/{k}": float(x) for k, x in enumerate(action)})
        terms = {name: x for name, x in step.log.items() if name.startswith("reward/")}
        for name, value in {"reward": step.reward, **terms}.items():  # summed over the control steps of a frame
            series[-1][name] = series[-1].get(name, 0.0) + float(value)
        total, length = total + float(step.reward), length + 1
        if bool(step.terminated | step.truncated) or length * runner.control_s >= MAX_RECORDING_S:
            break
        successes = _successes(step)
    names = dict.fromkeys(name for frame in series for name in frame)
    arrays = {name: np.array([frame.get(name, 0.0) for frame in series]) for name in names}
    return Tape(
        policy=runner.policy,
        name=trained.name(runner.policy),
        total_return=total,
        length=length,
        geoms=(),
        poses=np.stack(bodies),
        outcome=_outcome(step, successes),
        series={name: values for name, values in arrays.items() if np.isfinite(values).all()},
        iteration=trained.iteration,
        model=model,
        frame_s=stride * runner.control_s,
        seconds=length * runner.control_s,
        qpos=np.stack(qpos),
        mocap=np.stack(mocap),
    )


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
    return float(step.log.get("episode/successes", 0.0))


def to_replay(trained: Trained, seed: int, tapes: tuple[Tape, ...]) -> Replay:
    """The tapes as a replay for the browser; they may be of several checkpoints, `trained` being the last."""
    model, names = tapes[0].model, [field.name for field in fields(Episode) if field.name != "geoms"]
    episodes = [Episode(geoms=geoms(x.model), **{name: getattr(x, name) for name in names}) for x in tapes]
    return Replay(
        run=trained.folder.name,
        task=trained.config.task,
        algo=trained.config.algo,
        iteration=trained.iteration,
        seed=seed,
        leader=trained.leader,
        frame_s=tapes[0].frame_s,
        bodies=tuple(model.body(i).name or f"body {i}" for i in range(model.nbody)),
        camera=camera(model, tapes[0].qpos[0]),
        episodes=tuple(episodes),
        meshes=meshes(model, (geom for one in episodes for geom in one.geoms)),
    )

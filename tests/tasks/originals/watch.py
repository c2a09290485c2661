"""Steps of a task as the original's functions would see them: after physics, before a goal or a state is new.

And what their formulas are written in: float64 rows, quaternions x y z w.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mujoco
import numpy as np
import torch

Array = np.ndarray


def product(a: Array, b: Array) -> Array:
    """Hamilton's, row by row."""
    v, w, u, s = a[:, :3], a[:, 3:], b[:, :3], b[:, 3:]
    return np.concatenate((w * u + s * v + np.cross(v, u), w * s - np.sum(v * u, axis=1, keepdims=True)), axis=1)


def conjugate(q: Array) -> Array:
    return q * np.array([-1.0, -1.0, -1.0, 1.0])


def rotate(q: Array, vector: Any) -> Array:
    """q v q*, row by row."""
    pure = np.concatenate((np.broadcast_to(vector, (len(q), 3)), np.zeros((len(q), 1))), axis=1)
    return product(product(q, pure), conjugate(q))[:, :3]


def xyzw(wxyz: Array) -> Array:
    return wxyz[:, [1, 2, 3, 0]]


def unscale(angles: Array, limits: Array) -> Array:
    low, high = limits.T
    return (2 * angles - high - low) / (high - low)


@dataclass
class Moment:
    """One control step of `N` environments; arrays are `[N, ...]`, in float64."""

    model: mujoco.MjModel
    action: Array
    qpos: Array
    qvel: Array
    ctrl: Array
    sensors: Array
    clock: Array
    """Steps of the episode, this one included, before anything turned it back."""
    kept: dict[str, Array]
    """Goals and commands of the task, as they were in this step."""
    observed: Array
    log: dict[str, Array]
    reward: Array
    terminated: Array
    truncated: Array
    after: "Moment | None" = None
    """The state that the next step starts from, where only `qpos` and `kept` count."""

    def sensor(self, name: str) -> Array:
        found = self.model.sensor(name)
        return self.sensors[:, found.adr[0] : found.adr[0] + found.dim[0]]

    @cached_property
    def bodies(self) -> Array:
        """`[N, bodies, 16]`: position, quaternion, spin, velocity of the point that follows; by MuJoCo."""
        model, data, rows = self.model, mujoco.MjData(self.model), []
        for data.qpos[:], data.qvel[:] in zip(self.qpos, self.qvel, strict=True):
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_comVel(model, data)
            rows.append(np.concatenate((data.xpos, data.xquat, data.cvel, data.subtree_com[model.body_rootid]), axis=1))
        return np.array(rows)

    def body(self, name: str) -> tuple[Array, Array, Array, Array]:
        """Position, quaternion, linear and angular velocity of a body's frame in the world."""
        place, quat, spin, speed, point = np.split(self.bodies[:, self.model.body(name).id], (3, 7, 10, 13), axis=1)
        return place, xyzw(quat), speed + np.cross(spin, place - point), spin


def state(env: Any, action: Any, observed: Any = None) -> Moment:
    """The environment as it is."""
    engine, none = env.engine, np.zeros(0)
    kept = {name: value.double().numpy().copy() for name, value in env.kept.items()}
    copies = [x.double().numpy().copy() for x in (action, engine.qpos, engine.qvel, engine.ctrl, engine.sensordata)]
    return Moment(engine.model, *copies, env.clock.numpy().copy(), kept, observed, {}, none, none, none)


def watch(env: Any, steps: int, disturb: Callable[[Any, torch.Generator], None]) -> Iterator[Moment]:
    """Random actions, and before every step what `disturb` does to some environments."""
    generator, moments = torch.Generator().manual_seed(5), []
    proceed, judge, clock = env.proceed, env.judge, env.clock.clone()

    def note_clock() -> None:
        clock.copy_(env.clock)
        judge()

    def note_state() -> None:
        moments.append(state(env, action, env.observe()["policy"].double().numpy()))
        proceed()

    env.proceed, env.judge = note_state, note_clock
    action = torch.zeros(env.num_envs, env.action_dim)
    for number in range(steps):
        disturb(env, generator)
        if number % 5 == 0:
            action = 2 * torch.rand(env.num_envs, env.action_dim, generator=generator) - 1
        step = env.step(action)
        seen = moments[-1]
        seen.clock = clock.numpy().copy()
        seen.log = {name: value.double().numpy() for name, value in step.log.items()}
        seen.reward, seen.after = step.reward.double().numpy(), state(env, action)
        seen.terminated, seen.truncated = step.terminated.numpy(), step.truncated.numpy()
        yield seen


def some(env: Any, generator: torch.Generator, share: float = 0.15) -> torch.Tensor:
    """`[N]` bool: a random share of the environments."""
    return torch.rand(env.num_envs, generator=generator) < share


def around(env: Any, generator: torch.Generator, centre: Any, spread: Any) -> torch.Tensor:
    """`[N, K]` about a centre, uniformly."""
    centre = torch.as_tensor(centre, dtype=torch.float64).expand(env.num_envs, -1)
    shares = 2 * torch.rand(centre.shape, generator=generator, dtype=torch.float64) - 1
    return centre + shares * torch.as_tensor(spread, dtype=torch.float64)


def directions(env: Any, generator: torch.Generator) -> torch.Tensor:
    """`[N, 4]`: quaternions w x y z, any."""
    drawn = torch.randn(env.num_envs, 4, generator=generator, dtype=torch.float64)
    return drawn / drawn.norm(dim=1, keepdim=True)


def nearby(env: Any, generator: torch.Generator, quaternions: torch.Tensor, spread: float) -> torch.Tensor:
    """`[N, 4]`: quaternions w x y z not far from those given."""
    drawn = quaternions + spread * torch.rand(env.num_envs, 1, generator=generator) * directions(env, generator)
    return drawn / drawn.norm(dim=1, keepdim=True)

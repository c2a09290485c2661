"""Steps of a task as the original's functions would see them: after physics, before a goal or a state is new."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import torch
from tasks.originals.maths import Array, xyzw


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

    def body(self, name: str) -> tuple[Array, Array, Array, Array]:
        """Position, quaternion, linear and angular velocity of a body's frame in the world, by MuJoCo."""
        model, data, number = self.model, mujoco.MjData(self.model), self.model.body(name).id
        rows = []
        for qpos, qvel in zip(self.qpos, self.qvel, strict=True):
            data.qpos[:], data.qvel[:], speed = qpos, qvel, np.zeros(6)
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_comVel(model, data)
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, number, speed, 0)
            rows.append(np.concatenate((data.xpos[number], data.xquat[number], speed[3:], speed[:3])))
        found = np.array(rows)
        return found[:, :3], xyzw(found[:, 3:7]), found[:, 7:10], found[:, 10:]


def state(env: Any, action: Any, **results: Any) -> Moment:
    """The environment as it is."""
    empty = np.zeros(0)
    found = {"observed": empty, "log": {}, "reward": empty, "terminated": empty, "truncated": empty} | results
    engine = env.engine
    kept = {name: value.double().numpy().copy() for name, value in env.kept.items()}
    arrays = (engine.qpos, engine.qvel, engine.ctrl, engine.sensordata)
    copies = [value.double().numpy().copy() for value in arrays]
    return Moment(engine.model, action.double().numpy(), *copies, env.clock.numpy().copy(), kept, **found)


def watch(env: Any, steps: int, disturb: Callable[[Any, torch.Generator], None]) -> Iterator[Moment]:
    """Random actions, and before every step what `disturb` does to some environments."""
    generator, moments = torch.Generator().manual_seed(5), []
    proceed, judge = env.proceed, env.judge
    clock = env.clock.clone()

    def note_clock() -> None:
        clock.copy_(env.clock)
        judge()

    def note_state() -> None:
        moments.append(state(env, action, observed=env.observe()["policy"].double().numpy()))
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

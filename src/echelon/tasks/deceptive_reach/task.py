"""DeceptiveReach: steer a point mass to a goal behind a wall; the dense reward leads straight into the wall.

A policy that follows the dense reward is stuck at the wall, close to the goal; the path around either end leads through
states with less reward. The task is pure torch, on any device; a MuJoCo model of the arena only shows it. Action,
observation, reward and episode are tabulated in `docs/tasks/deceptive_reach.md`.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from echelon.config.checks import check
from echelon.envs.contract import Groups, State, Step
from echelon.errors import UserError
from echelon.tasks.deceptive_reach.settings import DeceptiveReachConfig


class DeceptiveReach:
    """`num_envs` copies of the arena. `spread_clocks` and `blocks` are those of `MujocoTask`."""

    start = (-0.6, 0.0)
    goal = (0.7, 0.0)
    goal_radius = 0.2
    wall_face = 0.2
    """x of the wall's side that faces the start."""
    wall_thickness = 0.1
    trap_depth = 0.2
    """Distance from the wall's face within which the point counts as trapped."""
    acceleration = 0.01
    """Velocity gained in a step by an action of 1, in units per step."""
    drag = 0.05
    """Share of the velocity lost in a step."""
    top_speed = acceleration / drag
    """Speed at which drag balances full acceleration, in units per step."""
    action_dim = 2

    def __init__(
        self,
        config: DeceptiveReachConfig,
        num_envs: int,
        device: torch.device,
        seed: int,
        *,
        spread_clocks: bool = False,
        blocks: int = 1,
    ) -> None:
        if num_envs < 1:
            raise UserError(f"num_envs is at least 1, not {num_envs}")
        check(config, "env.")
        self.config, self.num_envs, self.device = config, num_envs, device
        self.episode_length, self.obs_spec = config.episode_length, {"policy": 4}
        self.generator = torch.Generator(device).manual_seed(seed)
        self.position = torch.zeros(2, num_envs, device=device)
        """`[2, N]`: x and y."""
        self.velocity = torch.zeros(2, num_envs, device=device)
        """`[2, N]`, in units per step."""
        self.clock = torch.zeros(num_envs, dtype=torch.int64, device=device)
        """`[N]`: steps since the episode began."""
        self.trapped_steps = torch.zeros(num_envs, device=device)
        """`[N]`: steps of this episode that ended in the trap."""
        self.closest = torch.zeros(num_envs, device=device)
        """`[N]`: smallest distance to the goal in this episode."""
        self._drawing: Any = None
        self._spread_clocks, self._blocks = spread_clocks, blocks
        self._everything = torch.ones(num_envs, dtype=torch.bool, device=device)
        # Constants of the step, made once: a captured CUDA graph cannot build tensors from Python numbers.
        self._start = torch.tensor(self.start, device=device)[:, None]
        half = config.wall_length / 2
        self.wall = (self.wall_face, self.wall_face + self.wall_thickness), (-half, half)
        """Sides of the solid wall along x and along y."""
        self._sides = torch.tensor(self.wall, device=device)
        self._edges = torch.tensor((-1.0, 1.0), device=device)

    def reset(self) -> Groups:
        self._begin(self._everything)
        if self._spread_clocks:
            self.clock.random_(0, self.episode_length, generator=self.generator)
        return self.observe()

    def step(self, action: Tensor) -> Step:
        self._move(action.detach().clamp(-1.0, 1.0).T)
        self.clock += 1
        distance = torch.hypot(self.position[0] - self.goal[0], self.position[1] - self.goal[1])
        reached = distance <= self.goal_radius
        truncated = (self.clock >= self.episode_length) & ~reached
        dense = self.config.dense_reward * (1.0 - 0.5 * distance).clamp(min=0.0)
        reward = dense + self.config.goal_bonus * reached
        log = self._figures(distance, reached)
        final_obs = self.observe()
        self._begin(reached | truncated)
        return Step(self.observe(), reward, reached, truncated, final_obs, log)

    def drawing(self) -> Any:
        """The arena as a MuJoCo model that shows the points of an environment on a CPU."""
        if self._drawing is None:
            import mujoco  # needed only to show the task

            from echelon.sim.cpu import CpuEngine

            model = mujoco.MjModel.from_xml_path(str(Path(__file__).with_name("arena.xml")))
            model.geom("wall").size[1] = 0.5 * self.config.wall_length
            self._drawing = SimpleNamespace(engine=CpuEngine(model, self.num_envs), substeps=1)
        return self._drawing

    def observe(self) -> Groups:
        """Position and velocity, `[N, 4]`."""
        return {"policy": torch.cat((self.position, self.velocity / self.top_speed)).T.contiguous()}

    def _move(self, action: Tensor) -> None:
        """Accelerate by `action [2, N]`, then move along x and then along y, each up to the next obstacle."""
        self.velocity.mul_(1.0 - self.drag).add_(action, alpha=self.acceleration)
        for axis in (0, 1):
            position, velocity = self.position[axis], self.velocity[axis]
            wanted = position + velocity
            position.copy_(wanted.clamp(*self._free(axis)))
            velocity.mul_(position == wanted)  # a collision stops the motion along this axis

    def _free(self, axis: int) -> tuple[Tensor, Tensor]:
        """`[N]` each: lower and upper limit of the position along an axis, by the arena's edge or the wall.

        They hold for the whole path of a step, so no speed is high enough to pass through the wall.
        """
        here, across = self.position[axis], self.position[1 - axis]
        (near, far), (first, last) = self._sides[axis], self._sides[1 - axis]
        in_the_way = (across > first) & (across < last)
        down = torch.where(in_the_way & (here >= far), far, self._edges[0])
        up = torch.where(in_the_way & (here <= near), near, self._edges[1])
        return down, up

    def _figures(self, distance: Tensor, reached: Tensor) -> dict[str, Tensor]:
        """Metrics of the state before a reset, `[N]` each."""
        (x, y), (bottom, top) = self.position, self.wall[1]
        before_wall = (x >= self.wall_face - self.trap_depth) & (x <= self.wall_face)
        trapped = (before_wall & (y > bottom) & (y < top)).float()
        self.trapped_steps += trapped
        self.closest.copy_(torch.minimum(self.closest, distance))
        return {
            "trapped": trapped,
            "episode/successes": reached.float(),
            "episode/trapped_steps": self.trapped_steps.clone(),
            "episode/closest": self.closest.clone(),
        }

    def _begin(self, mask: Tensor) -> None:
        """Start an episode in the environments of `mask [N]`. Starts are drawn for all, so that shapes are fixed."""
        spread = self.config.start_spread
        noise = torch.empty(2, self.num_envs // self._blocks, device=self.device)
        noise = noise.uniform_(-spread, spread, generator=self.generator).repeat(1, self._blocks)
        self.position.copy_(torch.where(mask, self._start + noise, self.position))
        self.velocity.masked_fill_(mask, 0.0)
        self.clock.masked_fill_(mask, 0)
        self.trapped_steps.masked_fill_(mask, 0.0)
        self.closest.masked_fill_(mask, torch.inf)
        if self._drawing is not None:
            self._drawing.engine.set_state(self._everything, self.position.T, self.velocity.T)

    def capturing(self) -> AbstractContextManager[None]:
        """Does nothing: torch captures its own kernels."""
        return nullcontext()

    def state_dict(self) -> State:
        return {name: getattr(self, name).clone() for name in _SAVED} | {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        saved = cast(Mapping[str, Any], state)
        for name in _SAVED:
            getattr(self, name).copy_(saved[name])
        self.generator.set_state(saved["generator"].cpu())


_SAVED = ("position", "velocity", "clock", "trapped_steps", "closest")

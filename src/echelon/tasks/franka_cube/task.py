"""FrankaCubePush and FrankaCubeStack: move a cube on a table with a Franka arm.

`docs/tasks/franka_cube.md` has the tables, `docs/tasks/fidelity.md` where and why they differ from the original.
"""

from abc import abstractmethod
from math import sqrt
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from echelon.envs.contract import Groups
from echelon.tasks import rotations
from echelon.tasks.franka_cube.operational_space import Arm
from echelon.tasks.franka_cube.settings import (
    CUBE_A,
    CUBE_B,
    GOAL_CUBE,
    FrankaCubeConfig,
    FrankaCubePushConfig,
    FrankaCubeStackConfig,
)
from echelon.tasks.mujoco_task import MujocoTask, ObsPart, StartState

TABLE_TOP = 1.025
HOME = (0.0, 0.1963, 0.0, -2.618, 0.0, 2.9416, 0.7854)
"""Default joint angles, in radians."""
START_OPENING, OPEN = 0.035, 0.04
"""Travel of a finger from shut, in metres: at the start, and the target of an open gripper."""
STIFFNESS, POSTURE_STIFFNESS = 150.0, 10.0
"""Acceleration per commanded shift or turn of the grip point, and per angle from the default pose, in 1/s²."""
DAMPING, POSTURE_DAMPING = 2.0 * sqrt(STIFFNESS), 2.0 * sqrt(POSTURE_STIFFNESS)
"""Critical, in 1/s."""
MAX_TORQUE = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)
SHARPNESS = 10.0
"""Rate at which closeness falls with distance, in 1/m."""
DRAWS = 16
"""Candidate positions drawn for cube A; the first that is far enough from cube B is used, or else the farthest. Fewer
than 1 start in 10⁷ has none that is far enough; with a smaller `start_spread` there may be none at all."""
OBS_CLIP, MOVED = 5.0, 0.005
"""Distance from its start, in metres, beyond which the cube counts as moved."""

C = TypeVar("C", bound=FrankaCubeConfig)


class FrankaCube(MujocoTask[C]):
    """Base class of both tasks. Coordinates: cube A, cube B if it is there, seven joints, two fingers."""

    substeps = 3
    other_edge: ClassVar[float]
    """Edge of cube B or of the cube that shows the goal, in metres."""

    def prepare(self) -> None:
        self.action_dim = 7
        model = self.engine.model
        self._arm = Arm(self.engine, tuple(f"panda/joint{i}" for i in range(1, 8)))
        self._sensors = {model.sensor(i).name: int(model.sensor(i).adr[0]) for i in range(model.nsensor)}
        self._home, self._max_torque = self.constant(HOME), self.constant(MAX_TORQUE)
        self._low, self._high = self.constant(model.jnt_range[-9:-2]).unbind(1)
        self._reach = self.constant((self.config.max_shift,) * 3 + (self.config.max_turn,) * 3)
        self._fingers = self.zeros(2) + START_OPENING

    @abstractmethod
    def other(self) -> Tensor:
        """`[N, 3]` m: position of cube B or of the goal."""

    @abstractmethod
    def succeeded(self) -> Tensor:
        """`[N]` bool: the task is solved in the current state, which ends the episode."""

    def start_state(self) -> StartState:
        spread, joint_spread = self.config.start_spread, self.config.joint_spread
        other = self.uniform(-spread, spread, 2)
        candidates = self.uniform(-spread, spread, DRAWS, 2)
        distance = (candidates - other[:, None]).norm(dim=2)
        # Distances are clamped at what is far enough, so that argmax finds the first such candidate.
        chosen = distance.clamp(max=sqrt(2.0) * (CUBE_A + self.other_edge)).argmax(dim=1)
        cube = candidates.gather(1, chosen[:, None, None].expand(-1, 1, 2))[:, 0]
        joints = self._home + self.uniform(-joint_spread, joint_spread, 7)
        cube, self._drawn_other = self._on_table(cube, CUBE_A), self._on_table(other, self.other_edge)
        bodies = (cube, self._drawn_other) if self.engine.model.nq > 16 else (cube,)  # a goal is no body
        qpos = torch.cat((*bodies, joints.clamp(self._low, self._high), self._fingers), dim=1)
        return StartState(qpos, self.zeros(self.engine.model.nv))

    def _on_table(self, place: Tensor, edge: float) -> Tensor:
        """`[N, 7]`: pose of a cube on the table at `place [N, 2]`, with a random yaw."""
        half = 0.5 * self.uniform(-self.config.start_yaw, self.config.start_yaw, 1)
        height, none = torch.full_like(half, TABLE_TOP + 0.5 * edge), torch.zeros_like(half)
        return torch.cat((place, height, half.cos(), none, none, half.sin()), dim=1)

    def control(self, action: Tensor) -> Tensor:
        """Torques from the state at the start of the step, held constant in it; both fingers have one target."""
        joints, speeds = self.engine.qpos[:, -9:-2].float(), self.engine.qvel[:, -9:-2].float()
        tool = STIFFNESS * self._reach * action[:, :6] - DAMPING * self._sensor("grip_linvel", 6)
        posture = POSTURE_STIFFNESS * rotations.wrapped(self._home - joints) - POSTURE_DAMPING * speeds
        torque = self._arm.torque(self.grip(), tool, posture).float()
        opening = OPEN * (action[:, 6:] >= 0.0)
        return torch.cat((torque.clamp(-self._max_torque, self._max_torque), opening.expand(-1, 2)), dim=1)

    def observe(self) -> Groups:
        pose = self.engine.qpos[:, :7].float()
        parts = (
            rotations.xyzw(pose[:, 3:]),
            pose[:, :3],
            self.other() - pose[:, :3],
            self.grip(),
            rotations.xyzw(self._sensor("grip_quat", 4)),
            self.engine.qpos[:, -2:].float(),
        )
        return {"policy": torch.cat(parts, dim=1).clamp(-OBS_CLIP, OBS_CLIP)}

    def layout(self) -> tuple[ObsPart, ...]:
        model = self.engine.model
        fingers = [model.joint(i).name for i in range(model.njnt - 2, model.njnt)]
        parts = (
            ObsPart("cube orientation", "xyzw", "1"),
            ObsPart("cube position", "xyz", "m"),
            ObsPart("way from cube to goal", "xyz", "m"),
            ObsPart("grip position", "xyz", "m"),
            ObsPart("grip orientation", "xyzw", "1"),
            ObsPart("joint position", fingers),
        )
        return tuple(part._replace(clip=OBS_CLIP) for part in parts)

    def cube(self) -> Tensor:
        """`[N, 3]` m: centre of cube A."""
        return self.engine.qpos[:, :3].float()

    def grip(self) -> Tensor:
        """`[N, 3]` m: the point between the fingertips."""
        return self._sensor("grip_pos", 3)

    def height(self) -> Tensor:
        """`[N]` m: of cube A's centre above the table."""
        return self.cube()[:, 2] - TABLE_TOP

    def lifted(self) -> Tensor:
        """`[N]` bool: cube A is well above the table."""
        return self.height() - CUBE_A > self.config.lift_height

    def aside(self) -> Tensor:
        """`[N]` m: horizontal distance of cube A from the goal or cube B."""
        return (self.other() - self.cube())[:, :2].norm(dim=1)

    def figures(self) -> dict[str, Tensor]:
        """The state of the cube; zero where a simulation diverged."""
        fine = ~self.engine.bad
        return {
            "distance": self.aside(),
            "lifted": (self.lifted() & fine).float(),
            "episode/successes": (self.succeeded() & fine).float(),
        }

    def _sensor(self, name: str, size: int) -> Tensor:
        """`[N, size]`: readings of the sensor `name`, and of those after it up to `size` numbers."""
        start = self._sensors[f"panda/{name}"]
        return self.engine.sensordata[:, start : start + size].float()


class FrankaCubePush(FrankaCube[FrankaCubePushConfig]):
    """A Franka arm that slides a cube to a goal on the table."""

    scene = "franka_push.xml"
    other_edge = GOAL_CUBE

    def prepare(self) -> None:
        super().prepare()
        self.kept = {"goal": self.zeros(7), "start": self.zeros(2)}
        """Pose of the goal, whose orientation is for display only, and the cube's start position."""
        self.totals = {"moved": self.zeros()}

    def other(self) -> Tensor:
        return self.kept["goal"][:, :3]

    def begin(self, mask: Tensor) -> None:
        goal, start = self.kept["goal"], self.kept["start"]
        goal.copy_(torch.where(mask[:, None], self._drawn_other, goal))
        start.copy_(torch.where(mask[:, None], self.cube()[:, :2], start))
        shown = goal.to(self.engine.mocap_pos.dtype)
        self.engine.mocap_pos[:, 0], self.engine.mocap_quat[:, 0] = shown[:, :3], shown[:, 3:]

    def succeeded(self) -> Tensor:
        return self.aside() < self.config.success_distance

    def failed(self) -> Tensor:
        """Lifting the cube is a failure. Success terminates the episode too, since no more reward follows."""
        return self.succeeded() | self.lifted()

    def reward(self, action: Tensor) -> Tensor:
        config = self.config
        near, reached = closeness(self.aside()), self.succeeded()
        over = (self.lifted() | (self.clock >= self.episode_length)) & ~reached
        left = (self.episode_length + 1 - self.clock).float()
        terms = {
            "align": (config.align_reward * near).masked_fill(reached | over, 0.0),
            "success": config.success_reward * left * reached,
            "end": config.end_cost * (near - 1.0) * over,
        }
        return self.total(terms)

    def figures(self) -> dict[str, Tensor]:
        moved = ((self.cube()[:, :2] - self.kept["start"]).norm(dim=1) > MOVED) & ~self.engine.bad
        self.totals["moved"].copy_(torch.maximum(self.totals["moved"], moved.float()))
        return super().figures() | {"episode/moved": self.totals["moved"]}


class FrankaCubeStack(FrankaCube[FrankaCubeStackConfig]):
    """A Franka arm that puts one cube on another."""

    scene = "franka_stack.xml"
    other_edge = CUBE_B

    def prepare(self) -> None:
        super().prepare()
        self.totals = {"lifted": self.zeros()}
        """1 once cube A was lifted."""
        self._above = self.constant((0.0, 0.0, 0.5 * (CUBE_A + CUBE_B)))

    def other(self) -> Tensor:
        return self.engine.qpos[:, 7:10].float()

    def succeeded(self) -> Tensor:
        """The height is measured from the table, as in the original, so cube B must stand on it."""
        config = self.config
        high = (self.height() - (CUBE_B + 0.5 * CUBE_A)).abs() < config.stack_tolerance
        released = (self.cube() - self.grip()).norm(dim=1) > config.release_distance
        return (self.aside() < config.stack_tolerance) & high & released

    def failed(self) -> Tensor:
        """Only success ends an episode before the time limit, since no more reward follows."""
        return self.succeeded()

    def reward(self, action: Tensor) -> Tensor:
        config, cube, lifted, stacked = self.config, self.cube(), self.lifted(), self.succeeded()
        points = (self.grip(), self._sensor("left_tip_pos", 3), self._sensor("right_tip_pos", 3))
        distance = (torch.stack(points) - cube).norm(dim=2).mean(dim=0)
        align = closeness((self.other() + self._above - cube).norm(dim=1)) * lifted
        reach = torch.maximum(closeness(distance), align)
        terms = {
            "reach": config.reach_reward * reach * ~stacked,
            "lift": config.lift_reward * (lifted & ~stacked),
            "align": config.align_reward * align * ~stacked,
            "stack": config.stack_reward * stacked,
        }
        return self.total(terms)

    def figures(self) -> dict[str, Tensor]:
        figures = super().figures()
        lifted = self.totals["lifted"]
        lifted.copy_(torch.maximum(lifted, figures["lifted"]))
        return figures | {"episode/lifted": lifted}


def closeness(distance: Tensor) -> Tensor:
    """1 at distance 0, falling to 0 far away."""
    return 1.0 - torch.tanh(SHARPNESS * distance)

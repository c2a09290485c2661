"""Humanoid: run along +x on 21 motors, as fast as possible, without falling.

`docs/tasks/humanoid.md` has the tables, `docs/tasks/fidelity.md` where and why they differ from the original.
"""

import torch
from torch import Tensor

from echelon.envs.contract import Groups
from echelon.tasks import rotations
from echelon.tasks.humanoid.settings import HumanoidConfig
from echelon.tasks.mujoco_task import MujocoTask, ObsPart, StartState


class Humanoid(MujocoTask[HumanoidConfig]):
    """A humanoid that runs towards a distant target."""

    scene = "humanoid.xml"
    substeps = 3
    target_x = 1000.0
    """The target lies on the x-axis, this far from the start, in metres."""
    upright = 0.93
    """z of the torso's axis above which it counts as upright."""
    on_course = 0.8
    """Projection of the torso's x on the way to the target above which nothing more is gained."""
    near_limit = 0.98
    """Share of its range beyond which a joint counts as at its stop."""
    force_scale, joint_velocity_scale, spin_scale = 0.01, 0.1, 0.25
    privileged = ("0:4",)  # the torso's height and velocity

    def prepare(self) -> None:
        model = self.engine.model
        self.dt: float = model.opt.timestep * self.substeps
        constant = self.constant
        self._low, self._high = constant(model.jnt_range[1:]).T.contiguous()
        self._effort = constant(model.actuator_gear[:, 0])
        self._strength = self._effort / self._effort.max()
        self._stiffness = constant(model.jnt_stiffness[1:])
        self._damping = constant(model.dof_damping[6:])
        self._root = constant(model.qpos0[:7]).expand(self.num_envs, 7)
        self._ahead = constant((1.0, 0.0, 0.0)).expand(self.num_envs, 3)
        self._before = self.engine.qpos[:, :2].clone()
        """`[N, 2]`: x and y before the step, which progress is measured from."""
        self.kept = {"action": self.zeros(self.action_dim)}
        """The last action, before randomisation delays it and adds noise; zero at the start."""
        first = int(model.sensor("right_foot_force").adr[0])
        self._wrenches = slice(first, first + 12)

    def start_state(self) -> StartState:
        angle, velocity = self.config.start_angle, self.config.start_velocity
        joints = self.uniform(-angle, angle, 21).clamp(self._low, self._high)
        speeds = self.uniform(-velocity, velocity, 21)
        return StartState(torch.cat((self._root, joints), dim=1), torch.cat((self.zeros(6), speeds), dim=1))

    def begin(self, mask: Tensor) -> None:
        self.kept["action"].masked_fill_(mask[:, None], 0.0)

    def control(self, action: Tensor) -> Tensor:
        self._before.copy_(self.engine.qpos[:, :2])
        self.kept["action"].copy_(action.nan_to_num())
        return action

    def height(self) -> Tensor:
        """`[N]`: height of the torso's origin, in metres."""
        return self.engine.qpos[:, 2].float()

    def failed(self) -> Tensor:
        return self.height() < self.config.fall_height

    def progress(self) -> Tensor:
        """`[N]` m/s: how much closer the step came to the target, per second."""
        # The difference of two distances of about 1000 m would keep three digits in float32, so it is taken from their
        # squares: d₀ - d₁ = (d₀² - d₁²) / (d₀ + d₁).
        (x0, y0), (x1, y1) = self._before.unbind(1), self.engine.qpos[:, :2].unbind(1)
        squares = (x1 - x0) * (2.0 * self.target_x - x0 - x1) + (y0 - y1) * (y0 + y1)
        distances = torch.hypot(self.target_x - x0, y0) + torch.hypot(self.target_x - x1, y1)
        return (squares / distances / self.dt).float()

    def heading(self) -> Tensor:
        """`[N]`: projection of the torso's x-axis on the horizontal way to the target, 1 when facing it."""
        position, quat = self.engine.qpos[:, :2].float(), self.engine.qpos[:, 3:7].float()
        forward = rotations.to_world(quat, self._ahead)
        dx, dy = self.target_x - position[:, 0], -position[:, 1]
        return (forward[:, 0] * dx + forward[:, 1] * dy) / torch.hypot(dx, dy)

    def up(self) -> Tensor:
        """`[N]`: z of the torso's z-axis, 1 when upright."""
        x, y = self.engine.qpos[:, 4:6].float().unbind(1)
        return 1.0 - 2.0 * (x * x + y * y)

    def joints(self) -> Tensor:
        """`[N, 21]`: joint angles, -1 and 1 at the stops."""
        angles = self.engine.qpos[:, 7:].float()
        return (2.0 * angles - self._high - self._low) / (self._high - self._low)

    def observe(self) -> Groups:
        position, quat = self.engine.qpos[:, :3].float(), self.engine.qpos[:, 3:7].float()
        velocity = self.engine.qvel.float()
        # N·m, of motors, springs and dampers.
        forces = self._effort * self.engine.ctrl.float() - self._stiffness * self.engine.qpos[:, 7:].float()
        forces = forces - self._damping * velocity[:, 6:]
        yaw = rotations.yaw(quat)
        bearing = torch.atan2(-position[:, 1], self.target_x - position[:, 0])
        angles = (yaw, rotations.roll(quat), rotations.wrapped(bearing - yaw), self.up(), self.heading())
        parts = (
            position[:, 2:3],
            rotations.to_base(quat, velocity[:, :3]),
            self.spin_scale * velocity[:, 3:6],
            torch.stack(angles, dim=1),
            self.joints(),
            self.joint_velocity_scale * velocity[:, 6:],
            self.force_scale * forces,
            self.force_scale * self.engine.sensordata[:, self._wrenches].float(),
            self.kept["action"],
        )
        return {"policy": torch.cat(parts, dim=1)}

    def layout(self) -> tuple[ObsPart, ...]:
        joints = [self.engine.model.joint(i).name for i in range(1, 22)]
        low, high = self._low.double(), self._high.double()
        wrench = ("force x", "force y", "force z", "torque x", "torque y", "torque z")
        return (
            ObsPart("base height", ("torso",), "m"),
            ObsPart("base linear velocity", "xyz", "m/s"),
            ObsPart("base angular velocity", "xyz", "rad/s", self.spin_scale),
            ObsPart("base angle", ("yaw", "roll", "bearing of the target"), "rad"),
            ObsPart("base projection", ("up", "towards the target"), "1"),
            ObsPart("joint position", joints, scale=(2 / (high - low)).tolist(), offset=((high + low) / 2).tolist()),
            ObsPart("joint velocity", joints, scale=self.joint_velocity_scale),
            ObsPart("joint torque", joints, "N m", self.force_scale),
            *(
                ObsPart(f"{foot} foot force and torque", wrench, "N, N m", self.force_scale)
                for foot in ("right", "left")
            ),
            ObsPart("previous action", joints, "1"),
        )

    def reward(self, action: Tensor) -> Tensor:
        config, joints = self.config, self.joints().abs()
        # The reward of a quarantined row does not count, but its terms are logged.
        action = action.nan_to_num()
        power = (action * self.joint_velocity_scale * self.engine.qvel[:, 6:].float()).abs()
        at_stop = (joints - self.near_limit).clamp(min=0.0) / (1.0 - self.near_limit)
        terms = {
            "progress": self.progress(),
            "alive": torch.full_like(self.height(), config.alive_reward),
            "up": config.up_reward * (self.up() > self.upright),
            "heading": config.heading_reward * (self.heading() / self.on_course).clamp(max=1.0),
            "action": -config.action_cost * action.square().sum(dim=1),
            "energy": -config.energy_cost * (power * self._strength).sum(dim=1),
            "limits": -config.limit_cost * (at_stop * self._strength).sum(dim=1),
        }
        fallen = self.failed()
        kept = {name: value.masked_fill(fallen, 0.0) for name, value in terms.items()}
        return self.total(kept | {"fall": config.fall_reward * fallen})

    def figures(self) -> dict[str, Tensor]:
        return {
            "forward_velocity": self.engine.qvel[:, 0].float(),
            "episode/distance": self.engine.qpos[:, 0].float(),
            "episode/fell": self.failed().float(),
        }

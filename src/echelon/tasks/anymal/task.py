"""Anymal: make a four-legged robot move at a commanded velocity over flat or rough ground.

`docs/tasks/anymal.md` has the tables, `docs/tasks/fidelity.md` where and why they differ from the original.
"""

import mujoco
import torch
from torch import Tensor

from echelon.envs.contract import Groups
from echelon.tasks import rotations
from echelon.tasks.anymal import terrain
from echelon.tasks.anymal.settings import AnymalConfig
from echelon.tasks.mujoco_task import MujocoTask, ObsPart, StartState


class Anymal(MujocoTask[AnymalConfig]):
    """A quadruped that tracks a commanded velocity and turning rate.

    On rough ground each environment has a level. In training it rises with an episode that followed its command to the
    end, and falls with the robot; an evaluation has all levels in turn.
    """

    scene = "anymal.xml"
    substeps = 4
    # HAA, HFE, KFE of the left fore, left hind, right fore and right hind leg.
    stance = (0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, 0.4, -0.8, -0.03, -0.4, 0.8)
    """Default joint angles, in radians."""
    tracking_width = 0.25
    """Squared error at which a tracking reward has fallen to 1/e."""
    start_spread = (0.5, 1.5)
    """Factors on the default joint angles at the start."""
    start_velocity = 0.1
    """Largest joint velocity at the start, in rad/s."""
    passing_error = 0.4
    """Mean error of the velocity in m/s below which an episode leads to the next level."""
    obs_clip = 5.0
    velocity_scale, spin_scale, joint_velocity_scale = 2.0, 0.25, 0.05
    privileged = ("0:3",)  # the base's velocity

    def prepare(self) -> None:
        model = self.engine.model
        self.kept = {"command": self.zeros(3), "action": self.zeros(12)}
        self.totals = {"steps": self.zeros(), "tracking_error": self.zeros()}
        self._stance = self.constant(self.stance)
        self._root = self.constant(model.qpos0[:7]).repeat(self.num_envs, 1)
        if self.config.terrain:
            place = torch.arange(self.num_envs, device=self.device) % (self.num_envs // self.rng.blocks)
            level = terrain.LEVELS - 1 - place % terrain.LEVELS  # a single robot, as in a film, is on the roughest
            self.kept["level"] = torch.zeros_like(level) if self._spread_clocks else level
        self._down = self.constant((0.0, 0.0, -1.0)).expand(self.num_envs, 3)
        config = self.config
        self._command_range = self.constant((config.max_forward, config.max_sideways, config.max_turn))
        self._command_scale = self.constant((self.velocity_scale, self.velocity_scale, self.spin_scale))
        base, torque = (int(model.sensor(name).adr[0]) for name in ("base", "LF_HAA"))
        self._touches, self._torques = slice(base, base + 5), slice(torque, torque + 12)

    def model(self) -> mujoco.MjModel:
        height = self.config.terrain
        if not height:
            return super().model()
        return terrain.on_rough_ground(mujoco.MjSpec.from_file(str(self.scene_file())), height)

    def start_state(self) -> StartState:
        if self.config.terrain:
            self._root[:, 0] = terrain.PITCH * self.kept["level"]
        joints = self._stance * self.uniform(*self.start_spread, 12)
        speeds = self.uniform(-self.start_velocity, self.start_velocity, 12)
        return StartState(torch.cat((self._root, joints), dim=1), torch.cat((self.zeros(6), speeds), dim=1))

    def begin(self, mask: Tensor) -> None:
        rows = mask[:, None]
        command, drawn = self.kept["command"], self._command_range * self.uniform(-1.0, 1.0, 3)
        command.copy_(torch.where(rows, drawn, command))
        self.kept["action"].masked_fill_(rows, 0.0)

    def control(self, action: Tensor) -> Tensor:
        self.kept["action"].copy_(action.nan_to_num())  # or the last observation of a diverged row would be NaN
        return self._stance + self.config.action_scale * action

    def velocity(self) -> Tensor:
        """`[N, 3]` m/s: of the base, in its own frame."""
        return rotations.to_base(self.engine.qpos[:, 3:7].float(), self.engine.qvel[:, :3].float())

    def failed(self) -> Tensor:
        return (self.engine.sensordata[:, self._touches] > self.config.contact_force).any(dim=1)

    def proceed(self) -> None:
        """Choose the level of the next episode where one ends, and put robots that left their tile back onto it."""
        if not self.config.terrain:
            return
        level = self.kept["level"]
        place = self.engine.qpos[:, :2]
        centre = torch.stack((terrain.PITCH * level, torch.zeros_like(level)), dim=1)
        place -= terrain.TILE * ((place - centre) / terrain.TILE).round()
        if self._spread_clocks:
            fell = self.failed()
            passed = (self.clock >= self.episode_length) & ~fell & ~self.engine.bad
            passed &= self.totals["tracking_error"] < self.passing_error * self.totals["steps"]
            moved = level + passed.long() - fell.long()
            again = self.uniform(0.0, terrain.LEVELS).long()  # from the top, anywhere
            level.copy_(torch.where(moved < terrain.LEVELS, moved, again).clamp(min=0))

    def observe(self) -> Groups:
        velocity = self.engine.qvel.float()
        turn = rotations.to_world if self.config.world_frame_gravity else rotations.to_base
        parts = (
            self.velocity_scale * self.velocity(),
            self.spin_scale * velocity[:, 3:6],
            turn(self.engine.qpos[:, 3:7].float(), self._down),
            self._command_scale * self.kept["command"],
            self.engine.qpos[:, 7:].float() - self._stance,
            self.joint_velocity_scale * velocity[:, 6:],
            self.kept["action"],
        )
        return {"policy": torch.cat(parts, dim=1).clamp(-self.obs_clip, self.obs_clip)}

    def layout(self) -> tuple[ObsPart, ...]:
        joints, clip = [self.engine.model.joint(i).name for i in range(1, 13)], self.obs_clip
        gravity = "base's downward axis in the world" if self.config.world_frame_gravity else "gravity direction"
        return (
            ObsPart("base linear velocity", "xyz", "m/s", self.velocity_scale, clip=clip),
            ObsPart("base angular velocity", "xyz", "rad/s", self.spin_scale, clip=clip),
            ObsPart(gravity, "xyz", "1", clip=clip),
            ObsPart("command", ("forward", "left"), "m/s", self.velocity_scale, clip=clip),
            ObsPart("command", ("turn",), "rad/s", self.spin_scale, clip=clip),
            ObsPart("joint position", joints, offset=self.stance, clip=clip),
            ObsPart("joint velocity", joints, scale=self.joint_velocity_scale, clip=clip),
            ObsPart("previous action", joints, "1", clip=clip),
        )

    def velocity_error(self) -> Tensor:
        """`[N, 2]` m/s: commanded less actual velocity, forward and to the left."""
        return self.kept["command"][:, :2] - self.velocity()[:, :2]

    def turn_error(self) -> Tensor:
        """`[N]` rad/s: commanded less actual turning rate."""
        return self.kept["command"][:, 2] - self.engine.qvel[:, 5].float()

    def reward(self, action: Tensor) -> Tensor:
        config = self.config
        linear = torch.exp(-self.velocity_error().square().sum(dim=1) / self.tracking_width)
        angular = torch.exp(-self.turn_error().square() / self.tracking_width)
        torque = self.engine.sensordata[:, self._torques].float().square().sum(dim=1)
        terms = {
            "linear": config.linear_reward * linear,
            "angular": config.angular_reward * angular,
            "torque": -config.torque_cost * torque,
        }
        return self.total(terms).clamp(min=0.0)

    def figures(self) -> dict[str, Tensor]:
        error = self.velocity_error().norm(dim=1)
        self.totals["steps"] += 1.0
        self.totals["tracking_error"] += error
        levels = {"level": self.kept["level"].float()} if self.config.terrain else {}
        return levels | {
            "tracking_error": error,
            "turn_error": self.turn_error().abs(),
            "episode/tracking_error": self.totals["tracking_error"] / self.totals["steps"],
            "episode/fell": self.failed().float(),
        }

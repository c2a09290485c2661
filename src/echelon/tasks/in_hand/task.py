"""AllegroHand and ShadowHand: turn a cube in a hand to one orientation after another.

The reward is −10 d + 1/(φ + 0.1) − 0.0002 Σa², and 250 when the goal is reached; d, φ: distance and angle to it. All
terms are of the state after the step and of the goal that was active in it. A goal reached is replaced within the step,
so the observation to act on shows the next one, and so does `final_obs`. `docs/tasks/allegro_hand.md` has the tables.
"""

from typing import ClassVar

import torch
from torch import Tensor

from echelon.envs.contract import Groups
from echelon.tasks import rotations
from echelon.tasks.in_hand.settings import InHandConfig
from echelon.tasks.mujoco_task import MujocoTask, ObsPart, StartState

VELOCITY_SCALE, FORCE_SCALE, OBS_CLIP = 0.2, 10.0, 5.0
SHADOW_JOINTS = {"WR": "10", "FF": "3210", "MF": "3210", "RF": "3210", "LF": "43210", "TH": "43210"}
"""Joint numbers of the Shadow hand's wrist and of each finger, from the arm outwards."""


class InHand(MujocoTask[InHandConfig]):
    """A hand that turns a cube to one goal orientation after another; the base class of both hands' tasks.

    In the scene, the cube's body, joint and geom are named `cube`; its only mocap body shows the goal.
    """

    objective = "successes"
    hand_joints: ClassVar[tuple[str, ...]]
    """Joints in the order of the observation, which is the model's."""
    cube_start: ClassVar[tuple[float, float, float]]
    """Where the cube starts, in metres."""
    goal_position: ClassVar[tuple[float, float, float]]
    """Where the cube should stay, in metres."""
    tips: ClassVar[tuple[str, ...]] = ()
    """Fingertips whose sensors `<tip>_pos`, `_quat`, `_linvel`, `_angvel`, `_force` and `_torque` are observed."""

    def prepare(self) -> None:
        model, joints, constant = self.engine.model, self.hand_joints, self.constant
        ids = [model.joint(name).id for name in joints]
        if ids != list(range(ids[0], ids[0] + len(ids))):
            raise ValueError(f"the joints {joints} are not in the model's order")
        cube, cube_dof = (int(adr[0]) for adr in (model.joint("cube").qposadr, model.joint("cube").dofadr))
        self.cube = slice(cube, cube + 7), slice(cube_dof, cube_dof + 6)
        """Columns of the cube in `qpos` and `qvel`."""
        first, first_dof = int(model.jnt_qposadr[ids[0]]), int(model.jnt_dofadr[ids[0]])
        self.joints = slice(first, first + len(ids)), slice(first_dof, first_dof + len(ids))
        """Columns of the hand in `qpos` and `qvel`."""
        self.totals = {"successes": self.zeros()}
        self.kept = {"goal": self.zeros(4), "action": self.zeros(self.action_dim)}
        """`goal`: the orientation to reach, w x y z. `action`: the last action, zero at the start."""
        names = ("distance_weight", "rotation_weight", "action_weight", "success_bonus")
        self.reward_scales = {name: self.zeros().fill_(getattr(self.config, name)) for name in names}
        """Reward weights, which may differ between members of a population."""
        place = 3 * len(joints) + 7
        self.privileged = (f"{place}:{place + 6}",)  # the cube's velocities: a camera gives its pose
        self._reached = ~self._everything
        self._low, self._high = constant(model.jnt_range[ids]).unbind(1)
        self._driven = torch.tensor([ids.index(joint) for joint in model.actuator_trnid[:, 0]], device=self.device)
        self._target_low, self._target_high = constant(model.actuator_ctrlrange).unbind(1)
        self._torque_low, self._torque_high = constant(model.actuator_forcerange).unbind(1)
        self._stiffness, self._damping = constant(model.actuator_gainprm[:, 0]), constant(-model.actuator_biasprm[:, 2])
        self._home = constant(model.qpos0)
        self._cube_start, self._goal_position = constant(self.cube_start), constant(self.goal_position)
        # Columns of `sensordata`, per tip: position, quaternion x y z w, velocities; then force and torque.
        starts = [[int(model.sensor(f"{tip}_{name}").adr[0]) for name in ("pos", "force")] for tip in self.tips]
        states = [start + i for start, _ in starts for i in (0, 1, 2, 4, 5, 6, 3, *range(7, 13))]
        wrenches = [start + i for _, start in starts for i in range(6)]
        self._tips, self._wrenches = (torch.tensor(columns, device=self.device) for columns in (states, wrenches))

    def start_state(self) -> StartState:
        spread = self.config.start_spread
        drawn = self._low + (self._high - self._low) * self.uniform(0.0, 1.0, len(self.hand_joints))
        qpos = self._home.repeat(self.num_envs, 1)
        start = self.cube[0].start
        qpos[:, start : start + 3] = self._cube_start + self.uniform(-spread, spread, 3)
        qpos[:, start + 3 : start + 7] = self._orientations()
        # A thumb joint of the Allegro hand has a range without zero, so a share of an angle in it may lie outside.
        qpos[:, self.joints[0]] = (self.config.joint_spread * drawn).clamp(self._low, self._high)
        return StartState(qpos, self.zeros(self.engine.model.nv))

    def begin(self, mask: Tensor) -> None:
        self._new_goals(mask)
        self.kept["action"].masked_fill_(mask[:, None], 0.0)
        # Targets equal to the joint angles, so that no torque is observed before the first action.
        angles = self.engine.qpos[:, self.joints[0]][:, self._driven]
        self.engine.ctrl.copy_(torch.where(mask[:, None], angles, self.engine.ctrl))

    def control(self, action: Tensor) -> Tensor:
        self.kept["action"].copy_(action.nan_to_num())
        return self._target_low + 0.5 * (action + 1.0) * (self._target_high - self._target_low)

    def distance(self) -> Tensor:
        """`[N]`: the cube's distance from the goal's position, in metres."""
        return (self._cube_pose()[0] - self._goal_position).norm(dim=1)

    def angle(self) -> Tensor:
        """`[N]`: the cube's angle to the goal, in radians."""
        return rotations.angle(self._to_goal())

    def failed(self) -> Tensor:
        return self.distance() >= self.config.drop_distance

    def reward(self, action: Tensor) -> Tensor:
        config, scales = self.config, self.reward_scales
        distance, angle = self.distance(), self.angle()
        self._reached = (angle <= config.success_angle) & ~self.engine.bad
        terms = {
            "distance": scales["distance_weight"] * distance,
            "rotation": scales["rotation_weight"] / (angle + config.rotation_softening),
            "action": scales["action_weight"] * action.square().sum(dim=1),
            "success": scales["success_bonus"] * self._reached,
            "drop": config.drop_reward * (distance >= config.drop_distance),
        }
        return self.total(terms)

    def figures(self) -> dict[str, Tensor]:
        self.totals["successes"] += self._reached
        return {"episode/successes": self.totals["successes"]}

    def proceed(self) -> None:
        self._new_goals(self._reached)

    def observe(self) -> Groups:
        qpos, qvel = self.engine.qpos.float(), self.engine.qvel.float()
        joints, velocities = qpos[:, self.joints[0]], qvel[:, self.joints[1]]
        position, orientation = self._cube_pose()
        linear, angular = qvel[:, self.cube[1]].split((3, 3), dim=1)
        columns = [
            (2.0 * joints - self._high - self._low) / (self._high - self._low),
            VELOCITY_SCALE * velocities,
            FORCE_SCALE * self._torques(joints, velocities),
            position,
            rotations.xyzw(orientation),
            linear,
            VELOCITY_SCALE * rotations.to_world(orientation, angular),  # MuJoCo's is in the cube's frame
            self._goal_position.expand(self.num_envs, 3),
            rotations.xyzw(self.kept["goal"]),
            rotations.xyzw(self._to_goal()),
        ]
        if self.tips:
            sensors = self.engine.sensordata.float()
            columns += [sensors[:, self._tips], FORCE_SCALE * sensors[:, self._wrenches]]
        return {"policy": torch.cat((*columns, self.kept["action"]), dim=1).clamp(-OBS_CLIP, OBS_CLIP)}

    def layout(self) -> tuple[ObsPart, ...]:
        low, high = self._low.double(), self._high.double()
        xyzw, wrench = "xyzw", ("force x", "force y", "force z", "torque x", "torque y", "torque z")
        parts = [
            ObsPart("joint position", self.hand_joints, "", (2 / (high - low)).tolist(), ((high + low) / 2).tolist()),
            ObsPart("joint velocity", self.hand_joints, "", VELOCITY_SCALE),
            ObsPart("joint torque", self.hand_joints, "N m", FORCE_SCALE if self.config.observe_torques else 0.0),
            ObsPart("cube position", "xyz", "m"),
            ObsPart("cube orientation", xyzw, "1"),
            ObsPart("cube linear velocity", "xyz", "m/s"),
            ObsPart("cube angular velocity", "xyz", "rad/s", VELOCITY_SCALE),
            ObsPart("goal position", "xyz", "m"),
            ObsPart("goal orientation", xyzw, "1"),
            ObsPart("rotation from goal to cube", xyzw, "1"),
        ]
        for tip in self.tips:
            parts += [ObsPart(f"{tip} position", "xyz", "m"), ObsPart(f"{tip} orientation", xyzw, "1")]
            velocities = {"linear": "m/s", "angular": "rad/s"}
            parts += [ObsPart(f"{tip} {kind} velocity", "xyz", unit) for kind, unit in velocities.items()]
        parts += [ObsPart(f"{tip} force and torque", wrench, "N, N m", FORCE_SCALE) for tip in self.tips]
        model = self.engine.model
        actuators = [model.actuator(i).name for i in range(model.nu)]
        return tuple(part._replace(clip=OBS_CLIP) for part in (*parts, ObsPart("previous action", actuators, "1")))

    def _torques(self, joints: Tensor, velocities: Tensor) -> Tensor:
        """`[N, joints]`: torques of the servos in the current state, zero at joints without one.

        Computed from the servos' law rather than read from a sensor of the last substep: so it is the same on every
        engine, and holds nothing of the previous episode.
        """
        torques = torch.zeros_like(joints)
        if self.config.observe_torques:
            error = self.engine.ctrl.float() - joints[:, self._driven]
            wanted = self._stiffness * error - self._damping * velocities[:, self._driven]
            torques.index_copy_(1, self._driven, wanted.clamp(self._torque_low, self._torque_high))
        return torques

    def _cube_pose(self) -> tuple[Tensor, Tensor]:
        """Position `[N, 3]` and orientation `[N, 4]` of the cube."""
        position, orientation = self.engine.qpos[:, self.cube[0]].float().split((3, 4), dim=1)
        return position, orientation

    def _to_goal(self) -> Tensor:
        """`[N, 4]`: the rotation from the goal to the cube, in the world's frame."""
        return rotations.multiply(self._cube_pose()[1], rotations.conjugate(self.kept["goal"]))

    def _orientations(self) -> Tensor:
        """`[N, 4]`: random orientations from the reference's distribution, which is not uniform over rotations."""
        return rotations.about_x_then_y(*self.uniform(-torch.pi, torch.pi, 2).unbind(1))

    def _new_goals(self, mask: Tensor) -> None:
        """Draw a new goal in the environments of `mask [N]`, and update the goal markers."""
        goal = self.kept["goal"]
        goal.copy_(torch.where(mask[:, None], self._orientations(), goal))
        self.engine.mocap_quat[:, 0] = goal.to(self.engine.mocap_quat.dtype)


class AllegroHand(InHand):
    """A 6.5 cm cube on the Allegro hand, at 30 Hz. Observation: 88 numbers, in `docs/tasks/allegro_hand.md`."""

    scene = "allegro_cube.xml"
    substeps = 4
    hand_joints = tuple(f"hand/{finger}_joint_{i}" for finger in ("index", "middle", "ring", "thumb") for i in range(4))
    cube_start = (0.0, -0.2, 0.56)
    goal_position = (0.0, -0.2, 0.52)


class ShadowHand(InHand):
    """A 5 cm cube on the Shadow hand, at 60 Hz. Observation: 211 numbers, in `docs/tasks/shadow_hand.md`."""

    scene = "shadow_hand.xml"
    substeps = 3
    hand_joints = tuple(f"{finger}J{number}" for finger, numbers in SHADOW_JOINTS.items() for number in numbers)
    cube_start = (0.0, -0.39, 0.60)
    goal_position = (0.0, -0.39, 0.56)
    tips = ("ffdistal", "mfdistal", "rfdistal", "lfdistal", "thdistal")

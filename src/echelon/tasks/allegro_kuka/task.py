"""AllegroKuka: pick up a cuboid with an Allegro hand on a KUKA arm, or two, and bring it to one goal after another.

A reached goal is replaced within the step, and the clock restarts: the observation to act on shows the next goal. Best
distances, the lifted flag and successes are observed as they were before the step's reward, as in the reference; after
a change of goal or the start of an episode, the new values are observed. `docs/tasks/allegro_kuka.md` has the tables.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import mujoco
import torch
from torch import Tensor

from echelon.envs.contract import Groups, State
from echelon.tasks import rotations
from echelon.tasks.allegro_kuka import objects, scene
from echelon.tasks.allegro_kuka.arms import START_SPEED, Arms, Hands
from echelon.tasks.allegro_kuka.grips import Grips
from echelon.tasks.allegro_kuka.objects import Draws, Pushes, Volume
from echelon.tasks.allegro_kuka.reward import HELD_HEIGHT, NEAR, TERMS, Progress, Seen, Tolerance
from echelon.tasks.allegro_kuka.settings import AllegroKukaConfig
from echelon.tasks.mujoco_task import MujocoTask, StartState

OBS_CLIP, REWARD_SCALE = 10.0, 0.01
"""Scale of the reward in the observation."""
REDRAWS = 3
"""How often an object that would start inside a hand is drawn again; in some poses of the hand every place is taken."""
GRIP, GRIPPING = 0.05, 2
"""A held object has at least `GRIPPING` fingertips within `GRIP` metres of its surface: the second nearest was within
3.4 cm in every scripted grasp that held, and an object tossed at 2 m/s leaves within two steps."""
CORNERS = ((1.0, 1.0, 1.0), (1.0, 1.0, -1.0), (-1.0, -1.0, 1.0), (-1.0, -1.0, -1.0))


class AllegroKuka(MujocoTask[AllegroKukaConfig]):
    """Base class of the AllegroKuka tasks."""

    substeps = 2
    objective = "objective"
    curriculum = ("tolerance", "tolerance_steps")
    arm_pose: ClassVar[tuple[float, ...]] = (-1.571, 1.571, 0.0, 1.376, 0.0, 1.485, 2.358)
    """The seven default angles of an arm at the start, in radians."""
    object_starts = Volume((-0.1, -0.1, 0.61), (0.1, 0.1, 0.65))
    goal_places = Volume((-0.4, 0.0, 0.68), (0.4, 0.35, 1.05))
    above_marker = 0.0
    """Height of a goal above its marker, in metres."""

    def prepare(self) -> None:
        config, num_envs, device = self.config, self.num_envs, self.device
        model, step = self.engine.model, self.substeps * self.engine.model.opt.timestep
        known = (objects.small(),) if config.objects == "small" else (objects.small(), objects.big(), objects.sticks())
        self.longest_episode = config.max_successes * self.episode_length
        """Control steps after which every episode has ended, however often its clock restarted."""
        self.scales, mass = objects.give(self.engine, objects.shuffled(*known), self.rng.each)
        """`[N, 3]`: edges in units of 5 cm."""
        self.arms = Arms(self.engine, self.arm_pose, config.relative_arm, step)
        self.hands = Hands(self.engine)
        self.draws = Draws(self.object_starts, self.goal_places, self.scales, config.keypoints > 1, self.rng)
        self.progress = Progress(num_envs, self.arms.count * 4, device)
        self.pushes = Pushes(num_envs, config.force_scale * float(mass[0]), step, self.rng)
        self.tolerance = Tolerance(config, device, self.rng.seeds)
        self.difficulty = self.tolerance.value
        self.reward_scales = {name: torch.ones(num_envs, device=device) for name in TERMS}
        """Factors of the reward's terms, which may differ between members of a population."""
        self.totals = {"lifted": self.zeros(), "held": self.zeros()}
        # All best fingertip distances are observed with one arm, none with two, as in the reference.
        self._observed_reaches = 4 if self.arms.count == 1 else 0
        self.kept = {
            "target": self.arms.target,
            "goal_position": self.zeros(3),
            "goal_orientation": self.zeros(4),
            **vars(self.progress),
            "force": self.pushes.force,
            "force_chance": self.pushes.chance,
            "tolerance": self.tolerance.value,
            "tolerance_steps": self.tolerance.steps,
            "successes": self.zeros(),
            "last_successes": self.zeros(),
            "reward": self.zeros(),
            "told": self.zeros(3 + self._observed_reaches),
        }
        corners = self.constant(CORNERS if config.keypoints == len(CORNERS) else [(0.0, 0.0, 0.0)])
        self._offsets = 0.5 * NEAR * objects.EDGE * corners * self.scales[:, None]
        """`[N, K, 3]`: keypoints in the object's frame, its centre or four corners of the cuboid enlarged by 1.5."""
        self._body = int(model.body("object").id)
        self._reached = ~self._everything
        self._home, self._above_marker = self.constant(model.qpos0), self.constant((0.0, 0.0, self.above_marker))
        self.grips = None
        if config.gripped_starts and self._spread_clocks:  # in training only
            self.grips = Grips(self.arms, self.scales, self.rng, self.substeps, self._drawn_start, self.held)
            self.kept |= self.grips.kept

    def adopt(self, state: State, *, fixed: bool) -> None:
        """Take the tolerance that training had reached in `state`; if `fixed`, keep it."""
        kept: Any = state["kept"]
        for name in self.curriculum:
            self.kept[name].copy_(kept[name])
        self.tolerance.fixed = fixed

    def join_ranks(self, mean: Callable[[Tensor], Tensor]) -> None:
        """Use one tolerance on all ranks, by the successes of all."""
        self.tolerance.mean_of_ranks = mean

    def model(self) -> mujoco.MjModel:
        return scene.build(self.scene)

    # Start of an episode.

    def start_state(self) -> StartState:
        start = self._drawn_start()
        return start if self.grips is None else self.grips.mixed_in(start, self.config.gripped_starts)

    def _drawn_start(self) -> StartState:
        """The task's own start: the object above the table, the hand away from it."""
        qpos, qvel = self._home.repeat(self.num_envs, 1), self.zeros(self.engine.model.nv)
        qpos[:, :7] = self.draws.starts()
        joints = self.arms.low.numel()
        qpos[:, self.arms.qpos] = self.arms.starts(self.uniform(0.0, 1.0, joints))
        qvel[:, self.arms.qvel] = self.uniform(-START_SPEED, START_SPEED, joints)
        return StartState(qpos, qvel)

    def begin(self, mask: Tensor) -> None:
        kept = self.kept
        kept["last_successes"].copy_(torch.where(mask, kept["successes"], kept["last_successes"]))
        for name in ("successes", "reward"):
            kept[name].masked_fill_(mask, 0.0)
        self.arms.hold(mask)
        self.pushes.begin(mask)
        placed = mask
        if self.config.replace_object:  # here too, so that hands are checked once per step, which takes the most time
            placed = mask | self._reached
            self._place_object(self._reached & ~mask, self.draws.starts())
        gripped = None if self.grips is None else self.grips.begin(mask, self._reached)
        self._clear_hands(placed if gripped is None else placed & ~gripped)
        self.progress.new_object(placed, self.reach())
        if gripped is not None:
            self.progress.lifted |= gripped
        self._new_goals(placed)

    # A step.

    def control(self, action: Tensor) -> Tensor:
        self.pushes.advance()
        pushed = self.engine.xfrc_applied
        pushed[:, self._body, :3] = rotations.to_world(self._pose()[1], self.pushes.force).to(pushed.dtype)
        return self.arms.control(action)

    def judge(self) -> None:
        kept = self.kept
        self._update_observed_progress(self._everything)
        self.tolerance.advance(kept["last_successes"])
        self._seen = seen = Seen(self._pose()[0][:, 2], self.reach(), self.distance(), *self.arms.speeds())
        terms, reached = self.progress.pay(seen, self.tolerance.of_each(self.num_envs), self.config)
        reward = self.total({name: self.reward_scales[name] * term for name, term in terms.items()})
        self._reached = reached & ~self.engine.bad
        kept["successes"] += self._reached
        kept["reward"].copy_(reward.masked_fill(self.engine.bad, 0.0))
        self.clock.masked_fill_(self._reached, 0)

    def failed(self) -> Tensor:
        failed = self._fallen() | (self.kept["successes"] >= self.config.max_successes)
        if self.config.hand_distance is not None:
            failed |= self._seen.reach.amax(dim=1) > self.config.hand_distance
        return failed if self.grips is None else failed | self.dropped(self.grips)

    def dropped(self, grips: Grips) -> Tensor:
        """`[N]`: objects that were gripped from the start and are back on the table."""
        return grips.dropped(self._seen.height)

    def reward(self, action: Tensor) -> Tensor:
        return self.kept["reward"]

    def figures(self) -> dict[str, Tensor]:
        successes, lifted, held = self.kept["successes"], self.progress.lifted.float(), self.held().float()
        self.totals["lifted"].copy_(torch.maximum(self.totals["lifted"], lifted))
        self.totals["held"] += held
        return {
            "lifted": lifted,
            "held": held,
            "distance": self._seen.distance,
            "best_distance": self.progress.best_distance,
            "tolerance": self.tolerance.of_each(self.num_envs),
            "episode/successes": successes,
            "episode/lifted": self.totals["lifted"],
            "episode/held": self.totals["held"],
            "episode/fell": (self._fallen() & ~self.engine.bad).float(),
            "episode/objective": self.tolerance.objective(successes),
        }

    def proceed(self) -> None:
        if not self.config.replace_object:
            self._new_goals(self._reached)

    def _place_object(self, mask: Tensor, pose: Tensor) -> None:
        """Put the object at `pose [N, 7]`, at rest, without changing the rest of the simulation."""
        qpos, qvel = self.engine.qpos, self.engine.qvel
        qpos[:, :7] = torch.where(mask[:, None], pose.to(qpos.dtype), qpos[:, :7])
        qvel[:, :6] = qvel[:, :6].masked_fill(mask[:, None], 0.0)

    def _clear_hands(self, mask: Tensor) -> None:
        """Draw another place for objects that were put into a hand, as often as `REDRAWS`."""
        # On a CPU only the masked rows are checked.
        rows = slice(None) if self.fixed_shapes else mask.nonzero()[:, 0]
        balls, inside = self.hands.balls(rows), torch.zeros_like(mask)
        for _ in range(REDRAWS):
            inside[rows] = self.hands.meet(balls, self.engine.qpos[rows, :7].float(), self.scales[rows])
            self._place_object(mask & inside, self.draws.starts())

    def _new_goals(self, mask: Tensor) -> None:
        """Draw new goals in the environments of `mask [N]`, and move the markers there."""
        position, orientation = self.kept["goal_position"], self.kept["goal_orientation"]
        place, turn = self.draws.goals()
        position.copy_(torch.where(mask[:, None], place + self._above_marker, position))
        orientation.copy_(torch.where(mask[:, None], turn, orientation))
        self.progress.new_goal(mask, self.distance())
        self._update_observed_progress(mask)
        self.engine.mocap_pos[:, 0] = (position - self._above_marker).to(self.engine.mocap_pos.dtype)
        self.engine.mocap_quat[:, 0] = orientation.to(self.engine.mocap_quat.dtype)

    # Observation.

    def reach(self) -> Tensor:
        """`[N, F]`: distance of every fingertip from the object's centre, in metres."""
        tips = self.arms.palms().fingertips.flatten(1, 2)
        return (tips - self._pose()[0][:, None]).norm(dim=2)

    def distance(self) -> Tensor:
        """`[N]`: the largest distance of a keypoint from the goal's, in metres."""
        return self._to_goal().norm(dim=2).amax(dim=1)

    def held(self) -> Tensor:
        """`[N]`: whether the object is as high as a lifted one now, with fingertips at its surface."""
        pose, tips = self.engine.qpos[:, :7].float(), self.arms.palms().fingertips.flatten(1, 2)
        return (pose[:, 2] > HELD_HEIGHT) & ((objects.gaps(tips, pose, self.scales) <= GRIP).sum(dim=1) >= GRIPPING)

    def _fallen(self) -> Tensor:
        """`[N]`: whether the object has fallen off the table."""
        return self._pose()[0][:, 2] < self.config.fall_height

    def observe(self) -> Groups:
        palms, velocity = self.arms.palms(), self.engine.qvel[:, :6].float()
        position, orientation = self._pose()
        points = self._keypoints(position, orientation)
        columns = (
            self.arms.unscaled(),
            self.arms.velocities(),
            palms.centre.flatten(1),
            palms.motion.flatten(1),
            rotations.xyzw(orientation),
            velocity[:, :3],
            rotations.to_world(orientation, velocity[:, 3:]),  # MuJoCo's is in the object's frame
            (palms.fingertips - palms.centre[:, :, None]).flatten(1),
            (points[:, None] - palms.centre[:, :, None]).flatten(1),
            self._to_goal().flatten(1),
            self.scales,
            self.kept["told"][:, :-1],
            torch.log1p(0.1 * self.clock.float())[:, None],
            self.kept["told"][:, -1:],
            REWARD_SCALE * self.kept["reward"][:, None],
        )
        return {"policy": torch.cat(columns, dim=1).clamp(-OBS_CLIP, OBS_CLIP)}

    def _update_observed_progress(self, mask: Tensor) -> None:
        """Update the observed progress of the episode in the environments of `mask [N]`."""
        progress, told = self.progress, self.kept["told"]
        columns = (
            progress.best_distance[:, None],
            progress.best_reach[:, : self._observed_reaches],
            progress.lifted[:, None].float(),
            torch.log1p(self.kept["successes"])[:, None],
        )
        told.copy_(torch.where(mask[:, None], torch.cat(columns, dim=1), told))

    def _pose(self) -> tuple[Tensor, Tensor]:
        """Position `[N, 3]` and orientation `[N, 4]` of the object."""
        position, orientation = self.engine.qpos[:, :7].float().split((3, 4), dim=1)
        return position, orientation

    def _to_goal(self) -> Tensor:
        """`[N, K, 3]`: vectors from the goal's keypoints to the object's."""
        return self._keypoints(*self._pose()) - self._keypoints(
            self.kept["goal_position"], self.kept["goal_orientation"]
        )

    def _keypoints(self, position: Tensor, orientation: Tensor) -> Tensor:
        """`[N, K, 3]`: keypoints of objects at `position [N, 3]` with `orientation [N, 4]`."""
        turns = orientation[:, None].expand(-1, self._offsets.shape[1], -1).flatten(0, 1)
        return position[:, None] + rotations.to_world(turns, self._offsets.flatten(0, 1)).view_as(self._offsets)


class AllegroKukaRegrasping(AllegroKuka):
    """Grasp, lift and hold at a point for 30 steps; then again from the table."""

    scene = "kuka_regrasping.xml"


class AllegroKukaReorientation(AllegroKuka):
    """Grasp, lift and bring to a pose; then to the next one."""

    scene = "kuka_one_arm.xml"


class AllegroKukaThrow(AllegroKuka):
    """Grasp, lift and throw into a bucket; then into another."""

    scene = "kuka_throw.xml"
    goal_places = Volume((-0.2, -1.0, 0.0), (0.2, 0.7, 1.0), side=0.7)
    above_marker = 0.05  # the marker's origin is the bucket's underside

    def prepare(self) -> None:
        super().prepare()
        self._table = self.constant(self.engine.model.geom("table").size[:2])

    def dropped(self, grips: Grips) -> Tensor:
        """Beside the table an object as low as one on it may be on its way into a bucket."""
        return super().dropped(grips) & (self._pose()[0][:, :2].abs() < self._table).all(dim=1)


class AllegroKukaTwoArmsReorientation(AllegroKuka):
    """Bring to poses that one arm alone may not reach."""

    scene = "kuka_two_arms.xml"
    arm_pose = (-1.571, 1.571, 0.0, 1.6, 0.0, 1.485, 2.358)
    object_starts = Volume((-0.1, -0.1, 0.61), (0.1, 0.1, 0.65), side=0.35)
    goal_places = Volume((-0.2, -0.5, 0.68), (0.2, 0.5, 1.05), side=0.75)

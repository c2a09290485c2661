"""Training episodes that begin with the object in the hand.

A script finds a grasp for each environment and its object, before training: it puts the object between fingers and
thumb of an open hand, closes the hand, lets the object go and waits. Where the object is put and how far the fingers
bend are drawn at random. Four attempts of five drop it; each environment keeps the last of its attempts that held.
"""

from collections.abc import Callable

import mujoco
import torch
from torch import Tensor

from echelon.tasks import rotations
from echelon.tasks.allegro_kuka.arms import Arms
from echelon.tasks.allegro_kuka.objects import EDGE
from echelon.tasks.allegro_kuka.scene import ARM_JOINTS, HAND_JOINTS
from echelon.tasks.mujoco_task import Rng, StartState

ATTEMPTS = 8
CLOSING, WAITING = 45, 60
"""Control steps in which the hand closes, and in which it must hold."""
OPEN = (0.0, 0.1, 0.1, 0.1) * 3 + (1.3, 0.2, 0.1, 0.1)
FINGER = (0.8, 0.4, 0.2), (1.5, 1.3, 1.0)
THUMB = (1.1, 0.0, 0.3, 0.3), (1.5, 0.5, 1.2, 1.2)
"""Least and largest angles of a closed hand, in radians; fingers are not spread."""
PLACE = (0.03, -0.02, 0.035, 0.4), (0.09, 0.03, 0.08, 0.9)
"""Where the hand grips: metres from the palm's centre towards the fingertips, aside and away from the palm, and which
part of the object is there, as a share of its height."""
SLOW = 0.2
"""m/s; a faster object is not at rest in the hand."""
DROPPED_HEIGHT = 0.65
"""Metres; a gripped object whose centre is lower is back on the table: goals are higher, but for buckets."""


class Grips:
    """A state in which the hand holds the object, for each environment, and which episodes began in it."""

    def __init__(
        self,
        arms: Arms,
        scales: Tensor,
        rng: Rng,
        substeps: int,
        start: Callable[[], StartState],
        held: Callable[[], Tensor],
    ) -> None:
        """`start()` draws states to begin from, `held()` says where the object is held. Changes the simulation."""
        self.arms, self.rng, engine = arms, rng, arms.engine
        nothing = torch.zeros(len(scales), dtype=torch.bool, device=scales.device)
        self._chosen = nothing.clone()
        self.kept = {"grip_qpos": engine.qpos.clone(), "grip_qvel": engine.qvel.clone()}
        self.kept |= {"grip_target": arms.target.clone(), "grip_known": nothing.clone(), "gripped": nothing.clone()}
        """State of the task: `gripped` are the episodes that began so and have not reached a goal."""
        for _ in range(ATTEMPTS):
            _attempt(arms, scales, rng, substeps, start().qpos)
            holds = held() & (engine.qvel[:, :3].norm(dim=1) < SLOW) & ~engine.bad
            for name, now in (("qpos", engine.qpos), ("qvel", engine.qvel), ("target", arms.target)):
                self.kept[f"grip_{name}"].copy_(torch.where(holds[:, None], now, self.kept[f"grip_{name}"]))
            self.kept["grip_known"] |= holds

    def mixed_in(self, start: StartState, share: float) -> StartState:
        """The starts with a share of them replaced, where a grasp is known."""
        self._chosen = self.kept["grip_known"] & (self.rng.uniform(0.0, 1.0) < share)
        grips = (self.kept[f"grip_{name}"].to(start.qpos.dtype) for name in ("qpos", "qvel"))
        return StartState(*(torch.where(self._chosen[:, None], *pair) for pair in zip(grips, start, strict=True)))

    def begin(self, mask: Tensor, reached: Tensor) -> Tensor:
        """Where among the episodes that start in `mask [N]` the object is gripped; `reached` a goal in this step."""
        gripped, known = mask & self._chosen, self.kept["gripped"]
        known.copy_(torch.where(mask, gripped, known & ~reached))
        self.arms.target.copy_(torch.where(gripped[:, None], self.kept["grip_target"], self.arms.target))
        return gripped

    def dropped(self, height: Tensor) -> Tensor:
        """`[N]`: gripped objects at `height [N]` that are as low as on the table."""
        return self.kept["gripped"] & (height < DROPPED_HEIGHT)


def _attempt(arms: Arms, scales: Tensor, rng: Rng, substeps: int, start: Tensor) -> None:
    """Grasp once in every environment; with two arms, by the first in one environment and by the second in the next."""
    engine, device, count = arms.engine, scales.device, len(scales)
    rows = torch.arange(count, device=device)
    arm = rows % rng.each % arms.count  # as with each seed alone

    def between(low: tuple[float, ...], high: tuple[float, ...]) -> Tensor:
        bounds = torch.tensor((low, high), device=device)
        return bounds[0] + (bounds[1] - bounds[0]) * rng.uniform(0.0, 1.0, len(low))

    first = arm[:, None] * len((*ARM_JOINTS, *HAND_JOINTS)) + len(ARM_JOINTS)
    hand = first + torch.arange(len(HAND_JOINTS), device=device)
    finger = torch.cat((torch.zeros(count, 1, device=device), between(*FINGER)), dim=1)
    opened = start[:, arms.qpos].float().scatter(1, hand, torch.tensor(OPEN, device=device).repeat(count, 1))
    closed = opened.scatter(1, hand, torch.cat((finger, finger, finger, between(*THUMB)), dim=1))
    place = between(*PLACE)
    offset = place[:, :3].clone()
    offset[:, 2] += (place[:, 3] - 0.5) * EDGE * scales[:, 2]
    # The shorter of the object's first two sides lies between fingers and thumb.
    half = 0.5**0.5
    turns = torch.tensor(((1.0, 0.0, 0.0, 0.0), (half, 0.0, 0.0, half)), device=device)
    turn, (centre, frame) = turns[(scales[:, 0] > scales[:, 1]).long()], _palm(engine.model)
    centre, frame = (x.to(device).expand(count, -1) for x in (centre, frame))

    def put() -> None:
        """Put the object at its place in the palm, at rest."""
        palms = arms.palms()
        x, y, z, w = palms.motion[rows, arm, :4].unbind(1)
        link = torch.stack((w, x, y, z), dim=1)
        palm = rotations.multiply(link, frame)
        position = palms.centre[rows, arm] + rotations.to_world(link, centre) + rotations.to_world(palm, offset)
        pose = torch.cat((position, rotations.multiply(palm, turn)), dim=1)
        engine.qpos[:, :7], engine.qvel[:, :6] = pose.to(engine.qpos.dtype), 0.0

    start[:, arms.qpos] = opened.to(start.dtype)
    engine.set_state(torch.ones_like(rows, dtype=torch.bool), start, torch.zeros_like(engine.qvel))
    for step in range(CLOSING + WAITING):
        arms.target.copy_(opened + (closed - opened) * min(1.0, 1.5 * (step + 1) / CLOSING))
        if step < CLOSING:
            put()
        engine.ctrl.copy_(arms.reachable())
        engine.step(substeps)


def _palm(model: mujoco.MjModel) -> tuple[Tensor, Tensor]:
    """The hand's palm in the frame of the arm's last link: position `[3]` from the task's centre, rotation `[4]`."""
    data, quat = mujoco.MjData(model), torch.zeros(4, dtype=torch.float64)
    mujoco.mj_kinematics(model, data)
    link, site = data.body("arm0/iiwa7_link_7"), data.site("arm0/hand/palm_centre")
    frame = torch.tensor(link.xmat).view(3, 3).T
    mujoco.mju_mat2Quat(quat.numpy(), (frame @ torch.tensor(site.xmat).view(3, 3)).flatten().numpy())
    return (frame @ torch.tensor(site.xpos - data.site("arm0/palm_ref").xpos)).float(), quat.float()

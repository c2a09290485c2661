"""CartpoleSwingup: swing a hanging pole up by moving its cart, then hold it there, in the middle of the rail.

Action, observation, reward and episode are tabulated in `docs/tasks/cartpole_swingup.md`.
"""

import math

import torch
from torch import Tensor

from echelon.envs.contract import Groups
from echelon.tasks.cartpole.settings import CartpoleConfig
from echelon.tasks.mujoco_task import MujocoTask, ObsPart, StartState


class CartpoleSwingup(MujocoTask[CartpoleConfig]):
    """A pole on a cart, to be swung up and balanced at the centre of the rail."""

    scene = "cartpole.xml"
    substeps = 2
    upright_angle = 0.25
    """The pole counts as upright within this angle, in radians."""
    rail = 1.9
    """Distance of the stops from the centre, in metres."""
    centre = 0.5
    """The cart counts as centred within this distance, in metres."""

    def prepare(self) -> None:
        self.totals = {"late_steps": self.zeros(), "late_upright": self.zeros()}
        self.privileged = ("3:5",) if self.config.velocities else ()  # an encoder measures angles

    def start_state(self) -> StartState:
        position = self.uniform(-self.config.start_position, self.config.start_position)
        angle = torch.pi + self.uniform(-self.config.start_angle, self.config.start_angle)
        velocity = self.uniform(-0.05, 0.05, 2)
        return StartState(torch.stack((position, angle), dim=1), velocity)

    def observe(self) -> Groups:
        position, angle = self.engine.qpos.float().unbind(1)
        columns = torch.stack((position, angle.sin(), angle.cos()), dim=1)
        if self.config.velocities:
            columns = torch.cat((columns, self.engine.qvel.float()), dim=1)
        return {"policy": columns}

    def layout(self) -> tuple[ObsPart, ...]:
        pole = [ObsPart(f"{function} of joint position", ("hinge",), "1") for function in ("sine", "cosine")]
        velocities = [ObsPart("joint velocity", ("slide", "hinge"))] if self.config.velocities else []
        return (ObsPart("joint position", ("slide",)), *pole, *velocities)

    def reward(self, action: Tensor) -> Tensor:
        position, angle = self.engine.qpos.float().unbind(1)
        spin = self.engine.qvel[:, 1].float()
        height = 0.5 + 0.5 * angle.cos()
        # The linear term gives a gradient from the bottom up; the fourth power makes standing worth more than spinning.
        raised = 0.25 * height + 0.75 * height.pow(4)
        # It decreases up to the stops: a plateau would make balancing against a stop a local optimum.
        centred = 1.0 - 0.8 * (position.abs() / self.rail)
        calm = 1.0 - self.config.spin_cost * spin.square()
        return raised * centred * calm.clamp(min=0.0) - self.config.action_cost * action[:, 0].square()

    def figures(self) -> dict[str, Tensor]:
        position, angle = self.engine.qpos.float().unbind(1)
        # cos instead of the angle, because the pole may have made several full turns.
        upright = ((angle.cos() > math.cos(self.upright_angle)) & (position.abs() < self.centre)).float()
        late = (self.clock > self.episode_length // 2).float()
        self.totals["late_steps"] += late
        self.totals["late_upright"] += late * upright
        share = self.totals["late_upright"] / self.totals["late_steps"].clamp(min=1.0)
        return {"upright": upright, "episode/upright_late": share}

"""Domain randomisation of a MuJoCo task: what each environment draws at a reset, and what that does to its steps.

Like the rest of a step it has fixed shapes and no branch on data: values are drawn for all environments at every step
and kept where an episode starts, and model fields are the plain ones times the kept factors.

MuJoCo derives constants from masses. Only `body_subtreemass` is computed again, since it places centres of mass.
The others, inverse weights at the initial pose, scale how soft constraints are, and no more. With ±30 % mass a contact
of impedance 0.9 acts like one of 0.87 to 0.93, a smaller change than a different `solimp` makes.
"""

import math
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from echelon.config.schema import RandomiseConfig
from echelon.device.fusion import fused
from echelon.envs.contract import Groups
from echelon.sim.contract import Engine
from echelon.tasks.mujoco_task import Rng

FIELDS = {
    "mass": ("body_mass", "body_inertia"),
    "friction": ("geom_friction", "pair_friction"),
    "damping": ("dof_damping",),
    "armature": ("dof_armature",),
    "gain": ("actuator_gainprm", "actuator_biasprm"),
    "gravity": ("opt.gravity",),
}
"""Model fields that a factor multiplies."""


class Randomiser:
    """Draws and applies the randomisation of all environments of a task."""

    def __init__(self, config: RandomiseConfig, engine: Engine, rng: Rng, substeps: int, observed: int) -> None:
        """`observed`: numbers in the policy's observation."""
        model, count, device = engine.model, engine.num_sims, engine.device
        self._engine, self._rng = engine, rng
        self._fixed_shapes = device.type == "cuda"
        self._control_step = substeps * model.opt.timestep
        self._push_chance = min(1.0, self._control_step / config.push_seconds)
        widths = {"mass": model.nbody, "damping": model.nv, "armature": model.nv, "gain": model.nu}
        active, counts = config.active(), [widths.get(name, 1) for name in config.active()]
        spans = pairwise(accumulate(counts, initial=0))
        self._width, self._sizes = sum(counts), (model.nu, observed)
        """Numbers that an environment draws at a reset; those that noise is added to."""
        self._noisy = "action_noise" in active or "observation_noise" in active
        """Found out here: torch 2.11 cannot trace a set with a dict's keys, and would leave the whole step plain."""
        self._columns = {name: slice(*span) for name, span in zip(active, spans, strict=True)}
        """Columns of each value among those drawn."""
        bounds = torch.tensor([*active.values()]).T.repeat_interleave(torch.tensor(counts), dim=1)
        self._low, self._high = bounds.to(device).split(1)
        self.state = {"drawn": self._low.repeat(count, 1)}
        """What is saved: values drawn by environment, and what is on its way to actuators and to the policy."""
        self._queues: dict[str, list[Tensor]] = {}
        """`[N, size]` of each of the last steps, newest first; a tensor each, so that compiled code writes in place."""
        for name, size in (("action_delay", model.nu), ("observation_delay", observed)):
            if name in self._columns:
                slots = 1 + math.ceil(getattr(config, name)[1] / self._control_step)
                self._queues[name] = [torch.zeros(count, size, device=device) for _ in range(slots)]
                self.state |= {f"{name}.{age}": values for age, values in enumerate(self._queues[name])}
        self.state["age"] = torch.zeros(count, 1, device=device)
        """Control steps since an episode began."""
        self._fields: list[tuple[str, Tensor, Tensor]] = []
        """Factor, live field, plain values."""
        for name in (name for name in FIELDS if name in self._columns):
            for field in FIELDS[name]:
                if field != "pair_friction" or model.npair:
                    live = engine.expand(field)
                    live = live[:, :, :3] if name == "gain" else live  # the others belong to muscles
                    plain = live[:1] if bool((live == live[:1]).all()) else live
                    self._fields.append((name, live, plain.clone()))
        if "mass" in self._columns:
            # Not expanded again: compiled code does not know which tensors share memory, and would read the old masses.
            self._mass, self._subtree = self._fields[0][1], engine.expand("body_subtreemass")
            inside = torch.eye(model.nbody)
            """`[body, ancestor]`: 1 where a body is part of a subtree."""
            for body in range(1, model.nbody):
                inside[body] += inside[model.body_parentid[body]]
            self._inside = inside.to(device)
        first = (model.body_dofnum > 0) & (model.body_weldid[model.body_parentid] == 0)
        force = torch.from_numpy(model.body_subtreemass / self._control_step * first)
        self._push_force = force.float()[:, None].to(device)
        """`[body, 1]`: for a speed of 1 m/s; 0 but for the first body of each mechanism."""
        self._cos_sin = torch.tensor((0.0, math.pi / 2), device=device)
        limited = torch.from_numpy(model.actuator_ctrllimited.astype(bool))
        half = torch.from_numpy(model.actuator_ctrlrange).diff(dim=1)[:, 0] / 2
        self._half_range = torch.where(limited, half, 1.0).float().to(device)

    def pin(self, values: dict[str, Tensor]) -> None:
        """Give each environment fixed values `[N]` by name, instead of drawing them."""
        low = self._low.repeat(self._engine.num_sims, 1)
        for name, value in values.items():
            low[:, self._columns[name]] = value[:, None]
        self._low = self._high = low

    def fuse(self) -> None:
        """Compile what `begin` writes, at its next call. All else is a part of the task's functions."""
        self._fixed_shapes, self._adopt = True, fused(self._adopt, self._engine.device)

    def draw(self) -> None:
        """Draw all random numbers of a step: each kind at once, as each is a launch."""
        self._share, self._push_share = self._rng.uniform(0.0, 1.0, self._width + 2).split((self._width, 2), dim=1)
        if self._noisy:
            self._control_noise, self._noise = self._rng.normal(sum(self._sizes)).split(self._sizes, dim=1)

    def begin(self, mask: Tensor) -> None:
        """Adopt new values in the episodes that start in `mask [N]`, before their states are set."""
        self._adopt(mask, self._share)

    def _adopt(self, mask: Tensor, share: Tensor) -> None:
        """Give the episodes that start values at `share [N, W]` of their ranges."""
        drawn = self.state["drawn"]
        drawn.copy_(torch.where(mask[:, None], torch.lerp(self._low, self._high, share), drawn))
        self.state["age"].masked_fill_(mask[:, None], 0.0)
        if not self._fixed_shapes and not mask.any():
            return
        for name, live, plain in self._fields:
            factor = drawn[:, self._columns[name]]
            live.copy_(plain * factor.view(*factor.shape, *[1] * (live.dim() - 2)))
        if "mass" in self._columns:
            # Not a product of matrices: that is three kernels, and TF32.
            self._subtree.copy_((self._mass[:, :, None] * self._inside).sum(1))

    def act(self, control: Tensor) -> Tensor:
        """Begin a step: draw its numbers, push where it is time. Returns controls as they reach the actuators."""
        self.draw()
        if "action_delay" in self._columns:
            control = self._late("action_delay", control)
        self.state["age"] += 1
        if "action_noise" in self._columns:
            control = control + self._value("action_noise") * self._half_range * self._control_noise
        if "push" in self._columns:
            chance, turn = self._push_share.split(1, dim=1)
            sideways = (2 * math.pi * turn - self._cos_sin).cos()
            speed = self._value("push") * (chance < self._push_chance)
            self._push = (speed * sideways)[:, None]
            self._engine.xfrc_applied[:, :, :2].add_(self._push_force * self._push)
        return control

    def acted(self) -> None:
        """End the pushes, which last for one control step."""
        if "push" in self._columns:
            self._engine.xfrc_applied[:, :, :2].sub_(self._push_force * self._push)

    def observe(self, seen: Groups, started: Tensor | None = None) -> Groups:
        """Observations as they reach the policy: after a step, and again where episodes have `started [N]` since."""
        policy = seen.get("policy")
        if policy is None:
            return seen
        if "observation_delay" in self._columns:
            if started is None:
                self._seen = policy = self._late("observation_delay", policy)
            else:
                self._queues["observation_delay"][0].copy_(policy)
                policy = torch.where(started[:, None], policy, self._seen)
        if "observation_noise" in self._columns:
            # After a reset the same numbers again, times the deviation of the new episode.
            policy = policy + self._value("observation_noise") * self._noise
        return seen | {"policy": policy}

    def _value(self, name: str) -> Tensor:
        """`[N, 1]`: what was drawn."""
        return self.state["drawn"][:, self._columns[name]]

    def _late(self, name: str, now: Tensor) -> Tensor:
        """What arrives of a signal `[N, D]`: the mean over a control step, so between two steps of the past it is both
        in part. No older than the episode, so it begins with its first value."""
        queue = self._queues[name]
        for newer, older in reversed([*pairwise(queue)]):
            older.copy_(newer)
        queue[0].copy_(now.nan_to_num())  # a NaN arrives at once, but not again after the reset that it brings
        age = torch.minimum(self._value(name) / self._control_step, self.state["age"])
        arriving = torch.zeros_like(now)
        for steps, values in enumerate((now, *queue[1:])):
            arriving.addcmul_(values, (1 - (age - steps).abs()).clamp(min=0))
        return arriving

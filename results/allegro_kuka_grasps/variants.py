"""A scene's physics settings, changed by a line of text: `substeps=6,contacts=11` or `cone=elliptic,impratio=10`.

| setting | value |
|---|---|
| `substeps` | physics steps in a control step, whose length stays |
| `iterations`, `line_search` | of the Newton solver, at most |
| `tolerance` | below which the solver and its line search stop |
| `cone` | pyramidal or elliptic |
| `impratio` | how much stiffer friction is than the contact's normal |
| `contacts` | time constant of contacts in milliseconds; MuJoCo never takes less than two physics steps |
| `solimp` | how hard contacts are, at first and at last: `0.9/0.95` is MuJoCo's default |
| `stops`, `stop_solimp` | the same two of joint stops: `stops=11`, `stop_solimp=0.9/0.95` |
| `friction` | of sliding |
| `condim` | 3: contacts slide; 4: they also resist turning on the spot |
| `frictionloss` | dry friction of hinges and slides, N m |
| `cubic_damping` | off: without the part that stands for a limit of speed |
| `gravcomp` | off: the robot feels its weight |
| `self` | off: links of the robot do not touch each other |
"""

from collections.abc import Callable

import mujoco
import numpy as np

from echelon.errors import UserError

CHOSEN = "chosen"
"""The scene as it is."""
CONES = {"pyramidal": mujoco.mjtCone.mjCONE_PYRAMIDAL, "elliptic": mujoco.mjtCone.mjCONE_ELLIPTIC}


def set_contact_time(model: mujoco.MjModel, value: str) -> None:
    model.geom_solref[touching(model), 0] = 1e-3 * float(value)
    model.pair_solref[:, 0] = 1e-3 * float(value)


def set_hardness(model: mujoco.MjModel, value: str) -> None:
    first, last = map(float, value.split("/"))
    model.geom_solimp[touching(model), :2] = first, last


def set_stop_time(model: mujoco.MjModel, value: str) -> None:
    model.jnt_solref[:, 0] = 1e-3 * float(value)


def set_stop_hardness(model: mujoco.MjModel, value: str) -> None:
    model.jnt_solimp[:, :2] = [float(part) for part in value.split("/")]


def set_friction(model: mujoco.MjModel, value: str) -> None:
    model.geom_friction[touching(model), 0] = float(value)


def set_condim(model: mujoco.MjModel, value: str) -> None:
    model.geom_condim[touching(model)] = int(value)


def set_friction_loss(model: mujoco.MjModel, value: str) -> None:
    model.dof_frictionloss[~np.isin(np.arange(model.nv), free_dofs(model))] = float(value)


def no_self_collision(model: mujoco.MjModel) -> None:
    """Links keep the bits by which they meet others; explicit pairs would have to overlap by more than their links."""
    model.geom_conaffinity[links(model)] = 0
    model.pair_margin[:] = -0.04


def option(name: str, read: Callable[[str], object] = int) -> Callable[[mujoco.MjModel, str], None]:
    return lambda model, value: setattr(model.opt, name, read(value))


def switch_off(edit: Callable[[mujoco.MjModel], None]) -> Callable[[mujoco.MjModel, str], None]:
    return lambda model, value: {"off": edit}[value](model)


EDITS: dict[str, Callable[[mujoco.MjModel, str], None]] = {
    "iterations": option("iterations"),
    "line_search": option("ls_iterations"),
    "tolerance": option("tolerance", float),
    "cone": option("cone", CONES.__getitem__),
    "impratio": option("impratio", float),
    "contacts": set_contact_time,
    "solimp": set_hardness,
    "stops": set_stop_time,
    "stop_solimp": set_stop_hardness,
    "friction": set_friction,
    "condim": set_condim,
    "frictionloss": set_friction_loss,
    "cubic_damping": switch_off(lambda model: model.dof_dampingpoly.fill(0.0)),
    "gravcomp": switch_off(lambda model: model.body_gravcomp.fill(0.0)),
    "self": switch_off(no_self_collision),
}


def vary(model: mujoco.MjModel, substeps: int, variant: str) -> int:
    """Change the model in place; returns the physics steps in a control step."""
    wanted = substeps
    for change in variant.split(",") if variant != CHOSEN else ():
        name, _, value = change.partition("=")
        try:
            if name == "substeps":
                wanted = int(value)
                model.opt.timestep *= substeps / wanted
            else:
                EDITS[name](model, value)
        except (KeyError, ValueError, ZeroDivisionError):
            known = ", ".join(("substeps", *EDITS))
            raise UserError(f"{change} is no change of the physics; it is name=value with one of {known}") from None
    return wanted


def touching(model: mujoco.MjModel) -> np.ndarray:
    """`[ngeom]` bool: geoms that can touch something."""
    return (model.geom_contype | model.geom_conaffinity) != 0


def free_dofs(model: mujoco.MjModel) -> np.ndarray:
    """Degrees of freedom of free joints, six for each."""
    first = model.jnt_dofadr[model.jnt_type == mujoco.mjtJoint.mjJNT_FREE]
    return (first[:, None] + np.arange(6)).ravel()


def links(model: mujoco.MjModel) -> np.ndarray:
    """`[ngeom]` bool: geoms that can touch something, of trees with a joint that an actuator moves."""
    kinds = (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT)
    joints = model.actuator_trnid[np.isin(model.actuator_trntype, kinds), 0]
    trees = model.body_treeid[model.jnt_bodyid[joints]]
    return touching(model) & np.isin(model.body_treeid[model.geom_bodyid], trees)


def touches_itself(model: mujoco.MjModel) -> bool:
    """Whether links of the robot meet each other."""
    types, affinities = model.geom_contype[links(model)], model.geom_conaffinity[links(model)]
    return bool(model.npair or (types[:, None] & affinities).any())


def worth_trying(model: mujoco.MjModel, substeps: int) -> list[str]:
    """Variants around a scene's own settings, the scene itself first."""
    opt = model.opt
    contacts = 1e3 * float(np.median(model.geom_solref[touching(model), 0]))
    twice = 2 * substeps
    variants = [CHOSEN, f"iterations={max(2, opt.iterations // 4)}", f"iterations={opt.iterations // 2}"]
    variants += [f"line_search={max(1, opt.ls_iterations // 2)}", f"iterations={2 * opt.iterations},line_search=50"]
    variants += [f"substeps={count}" for count in sorted({max(1, substeps // 2), substeps - 1, twice}) if count]
    variants += [f"substeps={twice},contacts={contacts / 2:.3g}", "contacts=20"]
    other = next(name for name, cone in CONES.items() if cone != opt.cone)
    variants.append(f"cone={other}")
    variants += [f"impratio={ratio}" for ratio in (1, 5) if ratio != opt.impratio]
    variants += ["cone=elliptic,impratio=10", "cone=elliptic,impratio=10,line_search=50"]
    variants.append(f"condim={4 if model.geom_condim[touching(model)].max() == 3 else 3}")
    if model.dof_frictionloss.any():
        variants.append("frictionloss=0")
    if model.dof_dampingpoly.any():
        variants.append("cubic_damping=off")
    if model.body_gravcomp.any():
        variants.append("gravcomp=off")
    if touches_itself(model):
        variants.append("self=off")
    return variants

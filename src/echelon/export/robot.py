"""What a machine that runs a policy has to know about the robot, read from the task that it was trained in."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from echelon.envs.observed import Observed
from echelon.envs.sources import code
from echelon.errors import UserError
from echelon.runs.metrics import jsonable
from echelon.runs.trained import Trained
from echelon.tasks import TASKS, built_in

PROBED = 4
"""Environments in which the map from actions to controls is found."""
UNITS = {"hinge": "rad", "slide": "m", "ball": "quaternion w x y z", "free": "m, quaternion w x y z"}
SIZES = {"ball": 4, "free": 7}


def describe_robot(trained: Trained) -> dict[str, Any]:
    """Joints, actuators, control rate, default pose and observation layout of a MuJoCo task; empty for other
    environments, and where the task's code or MuJoCo is missing."""
    with suppress(UserError):
        config = trained.config
        made = TASKS[config.task].task if built_in(config) else code(config.source or "")
        if hasattr(made, "layout"):
            env: Any = trained.make_env(PROBED, torch.device("cpu"), 0)
            if not isinstance(env, Observed):
                return _describe(env, range(env.obs_spec.get("policy", 0)))
            return _describe(env.env, env.observer.places if config.history == 1 else ())
    return {}


def _describe(task: Any, places: Collection[int]) -> dict[str, Any]:
    """`places` are the entries of the task's observation that the policy sees."""
    model = task.engine.model
    joints = _joints(task)
    units = {joint["name"]: joint["unit"] for joint in joints}
    settings = {name: x for name, x in asdict(task.config).items() if isinstance(x, bool | int | float)}
    return {
        "control_rate": 1 / (model.opt.timestep * task.substeps),
        "joints": joints,
        "actuators": _actuators(task, units),
        "observation": _layout(task, units, places),
        "settings": jsonable(settings),
    }


def _joints(task: Any) -> list[dict[str, Any]]:
    """Joints in the model's order, with their default position: the centre of the start states."""
    import mujoco

    model, pose = task.engine.model, _default_pose(task)
    kinds = {int(getattr(mujoco.mjtJoint, f"mjJNT_{kind.upper()}")): kind for kind in UNITS}
    found = list[dict[str, Any]]()
    for i in range(model.njnt):
        joint, kind, first = model.joint(i), kinds[int(model.jnt_type[i])], int(model.jnt_qposadr[i])
        facts = {"name": joint.name, "type": kind, "unit": UNITS[kind]}
        default = model.qpos0[first : first + SIZES[kind]].tolist() if kind in SIZES else [pose[first]]
        limits = model.jnt_range[i].tolist() if model.jnt_limited[i] else None
        found.append(facts | {"default": default, "range": limits})
    return found


def _actuators(task: Any, units: dict[str, str]) -> list[dict[str, Any]]:
    """Actuators in the order of controls, with `control = offset + scale * action`. A `position` or `velocity` control
    is a servo's target; a `force` control is a multiple of the unit."""
    import mujoco

    model, (offset, scale) = task.engine.model, _affine(task)
    found = list[dict[str, Any]]()
    for i in range(model.nu):
        gain, bias = float(model.actuator_gainprm[i, 0]), model.actuator_biasprm[i].tolist()
        kind = "position" if bias[1] == -gain else "velocity" if bias[2] == -gain else "force"
        on_joint = int(model.actuator_trntype[i]) == int(mujoco.mjtTrn.mjTRN_JOINT)
        joint = model.joint(model.actuator_trnid[i, 0]).name if on_joint else None
        length = units[joint] if joint else "m"
        force = f"{gain * model.actuator_gear[i, 0]:g} {'N m' if length == 'rad' else 'N'}"
        facts = {"name": model.actuator(i).name, "joint": joint, "control": kind}
        facts["unit"] = {"position": length, "velocity": f"{length}/s", "force": force}[kind]
        facts |= {"offset": offset[i], "scale": scale[i]} if offset and scale else {"offset": None, "scale": None}
        facts["range"] = model.actuator_ctrlrange[i].tolist() if model.actuator_ctrllimited[i] else None
        facts["force_range"] = model.actuator_forcerange[i].tolist() if model.actuator_forcelimited[i] else None
        found.append(facts | ({"stiffness": gain, "damping": -bias[2] or 0.0} if kind == "position" else {}))
    return found


def _layout(task: Any, units: dict[str, str], places: Collection[int]) -> list[dict[str, Any]]:
    """Parts of the observation in order, with a unit, scale and offset per entry, of what is at `places`."""
    found, start, place = list[dict[str, Any]](), 0, 0
    for part in task.layout():
        seen = [i for i in range(len(part.of)) if place + i in places]
        place += len(part.of)
        per = "/s" if part.quantity == "joint velocity" else ""
        facts = {"quantity": part.quantity, "of": [part.of[i] for i in seen], "start": start, "clip": part.clip}
        facts["unit"] = [part.unit or units[part.of[i]] + per for i in seen]
        for name, x in (("scale", part.scale), ("offset", part.offset)):
            facts[name] = [x[i] if isinstance(x, list | tuple) else x for i in seen]
        found += [facts] if seen else []
        start += len(seen)
    return found


def _affine(task: Any) -> tuple[list[float], list[float]] | tuple[None, None]:
    """Offset and scale per actuator; None if controls depend on the state, or an action moves several actuators."""
    random = torch.Generator().manual_seed(0)
    actions = torch.rand(8, PROBED, task.action_dim, generator=random) * 2 - 1
    task.reset()
    for action in actions[1:]:  # a control that depends on the state then differs between the environments
        task.step(action)
    probes = torch.cat((torch.tensor([[0.0], [1.0], [-1.0]]).expand(3, task.action_dim), actions[0, 3:]))
    controls = task.control(probes)
    offset, scale = controls[0], (controls[1] - controls[2]) / 2
    if controls.shape != probes.shape or not torch.allclose(offset + scale * probes, controls, atol=1e-5):
        return None, None
    return _digits(offset), _digits(scale)


def _default_pose(task: Any) -> list[float]:
    """A start state `[nq]` in which every draw is replaced by its mean."""
    rng, uniform, normal = task.rng, task.rng.uniform, task.rng.normal
    rng.uniform = lambda low, high, *columns: torch.full((PROBED, *columns), (low + high) / 2)
    rng.normal = lambda *columns: torch.zeros(PROBED, *columns)
    pose = _digits(task.start_state().qpos[0])
    rng.uniform, rng.normal = uniform, normal
    return pose


def _digits(x: Tensor) -> list[float]:
    """Round away the noise of float32."""
    return [float(f"{value:.6g}") for value in x.tolist()]

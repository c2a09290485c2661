"""The state of Gymnasium environments as plain data, so that a resumed run continues to the bit.

Gymnasium has no such thing: its environments are objects with attributes. Kept are all attributes of an environment
and its wrappers that are plain data (numbers, texts, arrays, lists of them, random generators), and MuJoCo's `MjData`.
Spaces, models and renderers do not change. Where there is anything else, nothing is kept: half a state would be a wrong
one. Nothing is pickled, because loading a pickle runs code.
"""

# The package is optional.
# pyright: reportMissingImports=false

import json
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.wrappers import PassiveEnvChecker

from echelon.envs.contract import State

CONSTANT = (gymnasium.Space, EnvSpec, type)
CONSTANT_NAMES = ("env", "model", "mujoco_renderer", "metadata", "spec", "_saved_kwargs", "_cached_spec")
VARIABLE_SIZE = ("efc_", "iefc_", "contact", "flex_")
"""Arrays of `MjData` with as many rows as there are contacts or constraints: every step makes them anew."""


class NotPlain(Exception):
    """An attribute is no plain data."""


def save(vector: VectorEnv) -> State:
    """Of every environment; empty where it cannot be told."""
    if type(vector) is not SyncVectorEnv:
        return {}
    try:
        return {str(number): _save_one(env) for number, env in enumerate(vector.envs)}
    except NotPlain:
        return {}


def load(vector: Any, state: Mapping[str, Any]) -> None:
    """Restore what `save` returned. A reset comes first: wrappers insist on one before the first step."""
    vector.reset()
    for number, env in enumerate(vector.envs):
        for part, kept in zip(_parts(env), state[str(number)], strict=True):
            for name, value in kept.items():
                if name == "data":
                    _load_mujoco(part.model, part.data, value)
                else:
                    setattr(part, name, _decode(value, getattr(part, name, None)))


def _parts(env: Any) -> Iterator[Any]:
    """An environment and its wrappers, from the outside in; not the checker, which only looks at first calls."""
    while isinstance(env, gymnasium.Wrapper):
        if not isinstance(env, PassiveEnvChecker):
            yield env
        env = env.env
    yield env


def _save_one(env: Any) -> list[dict[str, Any]]:
    return [
        {
            name: _save_mujoco(part.model, x) if _is_mujoco(x) else _encode(x)
            for name, x in vars(part).items()
            if name not in CONSTANT_NAMES and not isinstance(x, CONSTANT) and not name.startswith("_ezpickle")
        }
        for part in _parts(env)
    ]


def _is_mujoco(x: Any) -> bool:
    return type(x).__module__.startswith("mujoco") and type(x).__name__ == "MjData"


def _save_mujoco(model: Any, data: Any) -> dict[str, torch.Tensor]:
    """The state that MuJoCo integrates, and what it had computed: rewards may look at positions of the step before."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.zeros(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, state, kind)
    arrays = {name: x for name in dir(data) if isinstance(x := _array(data, name), np.ndarray)}
    return {"": torch.from_numpy(state)} | {name: torch.from_numpy(x.copy()) for name, x in arrays.items()}


def _load_mujoco(model: Any, data: Any, state: Mapping[str, torch.Tensor]) -> None:
    import mujoco

    mujoco.mj_setState(model, data, state[""].numpy(), mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)
    for name, x in state.items():
        if name:
            getattr(data, name)[:] = x.numpy()


def _array(data: Any, name: str) -> Any:
    """An array of `data` that the model alone gives its size; None of all else."""
    if name.startswith(("_", *VARIABLE_SIZE)):
        return None
    x = getattr(data, name)
    return x if isinstance(x, np.ndarray) and x.size and x.flags.writeable and x.dtype.names is None else None


def _encode(x: Any) -> Any:
    if x is None or type(x) in (bool, int, float, str):
        return x
    if isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "biuf":
        return {"array": torch.from_numpy(np.array(x)), "is_number": isinstance(x, np.generic)}
    if type(x) is list:
        return [_encode(item) for item in x]
    if type(x) is tuple:
        return tuple(_encode(item) for item in x)
    if type(x) is dict and all(isinstance(name, str) for name in x):
        return {"items": {name: _encode(value) for name, value in x.items()}}
    if isinstance(x, np.random.Generator) and isinstance(x.bit_generator, np.random.PCG64):
        return {"generator": json.dumps(x.bit_generator.state)}  # numbers of 128 bits
    raise NotPlain


def _decode(x: Any, now: Any) -> Any:
    """`now` is what the attribute is at the moment: a generator is set, because others may hold it, too."""
    if isinstance(x, list | tuple):
        return type(x)(_decode(item, None) for item in x)
    if not isinstance(x, Mapping):
        return x
    if "items" in x:
        return {name: _decode(value, None) for name, value in x["items"].items()}
    if "generator" in x:
        generator = now if isinstance(now, np.random.Generator) else np.random.default_rng(0)
        generator.bit_generator.state = json.loads(x["generator"])
        return generator
    array = x["array"].numpy().copy()
    return array[()] if x["is_number"] else array

"""Environments that are not built in: by another library's name for them, by an entry point, or by code.

A source is a text, stored with the run, so that every command that opens the run can build its environment:

    gymnasium:Walker2d-v5      a library that has an adapter here, and the environment's name there
    mypackage.module:make      a function `make(num_envs, device, seed, **args)`, or a class with such a constructor
    mypackage.reach_arm:Reach  a task in a folder like those of `echelon.tasks`
    myrobot                    an entry point of the group `echelon.envs`, which names such a function or class

It makes an `Env` as in `contract.py`, or a vector environment of Gymnasium, Isaac Lab or rsl_rl, which is wrapped.
"""

import ast
import inspect
import operator
import os
import sys
import typing
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from echelon.config import ModelConfig, TaskConfig, TaskInfo, TrainConfig, UpdateConfig, from_dict
from echelon.config.schema import ForeignSettings, tasks_in
from echelon.errors import UserError, first_line, install, nearest

if TYPE_CHECKING:
    import torch

    from echelon.envs.contract import Env, MakeEnv

OWN = TrainConfig(update=UpdateConfig(minibatches=16))
"""Whatever has no preset of its own: PPO, with four times the optimizer steps of the paper's."""
ON_DEVICE = TrainConfig(
    num_envs=4096,
    env_steps=200_000_000,
    model=ModelConfig(hidden=(512, 256, 128)),
    # These libraries limit no action, so a mean beyond 1 is no fault.
    update=UpdateConfig(horizon=24, learning_rate=1e-3, kl_threshold=0.01, bounds_coef=0.0, minibatches=4),
)
"""Thousands of environments in one simulation on a GPU."""
IN_PROCESS = TrainConfig(
    num_envs=32,
    env_steps=1_000_000,
    model=ModelConfig(hidden=(256, 256)),
    update=UpdateConfig(horizon=64, mini_epochs=10, minibatches=16, learning_rate=3e-4, kl_threshold=0.016),
)
"""Tens of environments, stepped one after another on a CPU: too few to split between policies."""
BOUNDED = replace(ON_DEVICE, num_envs=2048, update=replace(ON_DEVICE.update, bounds_coef=1e-4))
LIBRARIES = {
    "gymnasium": IN_PROCESS,
    "mjlab": ON_DEVICE,
    "isaaclab": ON_DEVICE,
    "maniskill": replace(BOUNDED, num_envs=1024, update=replace(BOUNDED.update, horizon=32)),
    "playground": BOUNDED,
}
"""Libraries whose environments have an adapter here, `make_LIBRARY(name, num_envs, device, seed, **args)`, by the extra
that installs them, and the settings to start from."""
FROM_FLAGS = ("num_envs", "device", "seed")
"""Arguments of every adapter that have a flag of their own."""
NOT_NAMES = ("make", "make_env", "build", "create")
"""Names of functions that do not describe what they make."""
MEMBERS = ("num_envs", "action_dim", "obs_spec", "episode_length", "device", "reset", "step")


def is_source(name: str) -> bool:
    """Whether this names an environment that is not built in."""
    return ":" in name or name in registered()


@cache
def registered() -> dict[str, str]:
    """Environments that installed packages offer, by name: `module:object`."""
    return {entry.name: entry.value for entry in entry_points(group="echelon.envs")}


def task_name(source: str) -> str:
    """The task's name in a run of this source."""
    place, _, name = source.rpartition(":")
    return place.rpartition(".")[2] if name in NOT_NAMES else name.replace("/", "-")


def foreign_preset(source: str) -> TrainConfig:
    """The settings to start from.

    A task's folder has a preset in its `settings`; any other class or function may have an attribute `preset`. Without
    one they are the defaults, with the settings that the class's constructor asks for.
    """
    library = source.partition(":")[0]
    if library in LIBRARIES:
        config = LIBRARIES[library]
    else:
        found = _find(source)
        config = getattr(found, "preset", None) or replace(OWN, env=(_settings_class(found) or TaskConfig)())
    if not isinstance(config, TrainConfig):
        raise UserError(f"the preset of {source} is a {type(config).__name__}, not a TrainConfig")
    return replace(config, task=task_name(source), source=source)


def code(source: str) -> Callable[..., Any]:
    """The function or class that a source other than a library's names."""
    found = _find(source)
    return found.task if isinstance(found, TaskInfo) else found


def _find(source: str) -> Any:
    """The task of a folder, or else the function or class, that a source names."""
    place, _, name = registered().get(source, source).partition(":")
    if not all(part.isidentifier() for part in place.split(".")):
        folder, module = os.path.split(place.rstrip("/"))
        hint = "write mypackage.module:make"
        if folder and module.isidentifier():
            hint = f"for a folder or file there, write {module.removesuffix('.py')}:{name} and run this in {folder}"
        raise UserError(f"{source!r} is not the name of code; {hint}")
    if os.getcwd() not in sys.path:  # console scripts do not search the working directory
        sys.path.append(os.getcwd())
    if name in (tasks := tasks_in(place)):
        return tasks[name]
    try:
        found: Any = operator.attrgetter(name)(import_module(place))
    except ModuleNotFoundError as error:
        advice = ("" if "." in place else nearest(place, LIBRARIES)) or "; install it, or run this where it lies"
        raise UserError(f"{source} cannot be imported ({first_line(error)}){advice}") from None
    except AttributeError as error:
        raise UserError(f"{source} cannot be found: {first_line(error)}") from None
    if not callable(found):
        raise UserError(f"{source} is a {type(found).__name__}, not a function or class")
    return found


def _settings_class(make: Callable[..., Any]) -> type[TaskConfig] | None:
    """The class of `config`, the first parameter of a task's constructor; None without such a parameter."""
    generics = (generic for base in getattr(make, "__mro__", ()) for generic in getattr(base, "__orig_bases__", ()))
    hints = [argument for generic in generics for argument in typing.get_args(generic)]
    with suppress(NameError):
        hints.append(inspect.get_annotations(getattr(make, "__init__", make), eval_str=True).get("config"))
    return next((hint for hint in hints if isinstance(hint, type) and issubclass(hint, TaskConfig)), None)


def source_of(make: Callable[..., Any]) -> str | None:
    """The source that names `make`, a function or class of an importable module; None if it cannot be named."""
    module, name = getattr(make, "__module__", None), getattr(make, "__qualname__", "<")
    if module in (None, "__main__", "builtins") or "<" in name:
        return None
    with suppress(AttributeError):
        if operator.attrgetter(name)(sys.modules.get(module)) is make:
            return f"{module}:{name}"
    return None


def env_args(config: TrainConfig) -> dict[str, Any]:
    """Parse `--env-arg`: `name=value`, where a value is a number, a switch, a list, or else a text."""
    found: dict[str, Any] = {}
    for word in config.env_arg:
        name, given, value = word.partition("=")
        if not given or not name.isidentifier():
            raise UserError(f"--env-arg takes name=value, not {word!r}")
        found[name] = value
        with suppress(ValueError, SyntaxError):
            found[name] = ast.literal_eval({"true": "True", "false": "False", "null": "None"}.get(value, value))
    return found


def maker(config: TrainConfig, *, spread_clocks: bool = False) -> "MakeEnv":
    """The function that builds the environments of a run from its source."""
    source, args = config.source, env_args(config)
    if source is None:
        unknown = f"{config.task} is not a built-in task, and its run does not say how to make it"
        raise UserError(f"{unknown}; pass make_env from Python, or train it with --env module:function")
    library, _, name = source.partition(":")
    if library in LIBRARIES:
        if not name:
            raise UserError(f"{source} names no environment; write {library}:NAME")
        for word in FROM_FLAGS:
            if word in args:
                raise UserError(f"--env-arg {word}=... is what --{word.replace('_', '-')} sets")
        return partial(_of_library, library, name, args)
    make = code(source)
    if (settings := _settings_class(make)) is not None:
        parameters = inspect.signature(make).parameters.values()
        if any(x.name == "spread_clocks" or x.kind is x.VAR_KEYWORD for x in parameters):
            args = {"spread_clocks": spread_clocks} | args
        env = config.env
        make = partial(make, from_dict(settings(), env.values, "env.") if isinstance(env, ForeignSettings) else env)

    def build(num_envs: int, device: "torch.device", seed: int) -> "Env":
        try:
            with suppress(ValueError):  # a builtin without a signature
                inspect.signature(make).bind(num_envs, device, seed, **args)
        except TypeError as error:
            call = f"make(num_envs, device, seed{''.join(f', {name}=...' for name in args)})"
            raise UserError(f"{source} cannot be called as {call}: {first_line(error)}") from None
        return as_env(make(num_envs, device, seed, **args), source, device, seed)

    return build


def _of_library(
    library: str, name: str, args: dict[str, Any], num_envs: int, device: "torch.device", seed: int
) -> "Env":
    """Build an environment by a library's adapter."""
    try:
        module = import_module(f"echelon.envs.{'torch' if library in ('mjlab', 'isaaclab') else library}_env")
        make = getattr(module, f"make_{library}")
        for word, parameter in inspect.signature(make).parameters.items():
            if parameter.annotation is bool and not isinstance(args.get(word, True), bool):
                raise UserError(f"--env-arg {word} is true or false, not {args[word]!r}")
        return make(name, num_envs, device, seed, **args)
    except ModuleNotFoundError as error:
        advice = "see its own instructions" if library == "isaaclab" else install(library)
        raise UserError(f"{library}:{name} needs {error.name}, which is not installed; {advice}") from None
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if not args:  # then the user passed nothing that could be wrong
            raise
        given = ", ".join(f"{word}={value}" for word, value in args.items())
        raise UserError(f"{library} cannot make {name} with {given}: {first_line(error)}") from error


def as_env(made: Any, source: str, device: "torch.device", seed: int) -> "Env":
    """`made` itself, or wrapped if it is a vector environment of another library. Gymnasium's is reset with `seed`, and
    what it returns is moved to `device`."""

    def has(*names: str) -> bool:
        return all(hasattr(made, name) for name in names)

    if has(*MEMBERS):
        return made
    if has("max_episode_length") and (has("single_action_space", "device") or has("get_observations", "num_actions")):
        from echelon.envs.torch_env import TorchEnv

        return TorchEnv(made)
    if has("num_envs", "single_action_space", "single_observation_space"):
        from echelon.envs.gymnasium_env import GymnasiumEnv

        return GymnasiumEnv(made, device, seed)
    if has("action_space", "observation_space"):
        raise UserError(f"{source} made one environment, not num_envs; return gymnasium.vector.SyncVectorEnv of many")
    missing = ", ".join(name for name in MEMBERS if not has(name))
    raise UserError(
        f"{source} made no environment: {type(made).__name__} lacks {missing}; docs/environments.md describes one"
    )

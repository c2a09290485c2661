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

from echelon.config import TaskConfig, TaskInfo, TrainConfig, from_dict
from echelon.config.schema import ForeignSettings, tasks_in
from echelon.envs.presets import LIBRARIES
from echelon.errors import UserError, first_line, install, nearest

if TYPE_CHECKING:
    import torch

    from echelon.envs.contract import Env, MakeEnv

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
    elif (info := _in_folder(source)) is not None:
        config = info.preset
    else:
        make = code(source)
        config = getattr(make, "preset", None) or TrainConfig(env=(_settings_class(make) or TaskConfig)())
        if not isinstance(config, TrainConfig):
            raise UserError(f"the preset of {source} is a {type(config).__name__}, not a TrainConfig")
    return replace(config, task=task_name(source), source=source)


def _in_folder(source: str) -> TaskInfo | None:
    """The task that a source names, if it lies in a task's folder."""
    place, name = _place(source)
    return tasks_in(place).get(name)


def _place(source: str) -> tuple[str, str]:
    """Module or folder and name of a source other than a library's; the working directory can be imported from."""
    place, _, name = registered().get(source, source).partition(":")
    if not all(part.isidentifier() for part in place.split(".")):
        raise UserError(f"{source!r} is not the name of code; write mypackage.module:make")
    if os.getcwd() not in sys.path:  # console scripts do not search the working directory
        sys.path.append(os.getcwd())
    return place, name


def code(source: str) -> Callable[..., Any]:
    """The function or class that a source other than a library's names."""
    if (info := _in_folder(source)) is not None:
        return info.task
    place, name = _place(source)
    try:
        found: Any = import_module(place)
        for part in name.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        hint = nearest(place, LIBRARIES) if "." not in place else ""
        advice = hint or "; install it, or run this where it lies"
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
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is make else None


def env_args(config: TrainConfig) -> dict[str, Any]:
    """Parse `--env-arg`: `name=value`, where a value is a number, a switch, a list, or else a text."""
    found: dict[str, Any] = {}
    for word in config.env_arg:
        name, given, value = word.partition("=")
        if not given or not name.isidentifier():
            raise UserError(f"--env-arg takes name=value, not {word!r}")
        try:
            found[name] = ast.literal_eval({"true": "True", "false": "False", "null": "None"}.get(value, value))
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def maker(config: TrainConfig, *, spread_clocks: bool = False) -> "MakeEnv":
    """The function that builds the environments of a run from its source."""
    source, args = config.source, env_args(config)
    if source is None:
        raise UserError(
            f"{config.task} is not a built-in task, and its run does not say how to make it; "
            "pass make_env from Python, or train it with --env module:function"
        )
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
    return partial(_of_code, source, make, args)


def _of_library(
    library: str, name: str, args: dict[str, Any], num_envs: int, device: "torch.device", seed: int
) -> "Env":
    """Build an environment by a library's adapter."""
    try:
        make = import_module(f"echelon.envs.{library}_env").make
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


def _of_code(
    source: str, make: Callable[..., Any], args: dict[str, Any], num_envs: int, device: "torch.device", seed: int
) -> "Env":
    """Build an environment by a function or class."""
    try:
        inspect.signature(make).bind(num_envs, device, seed, **args)
    except TypeError as error:
        raise UserError(
            f"{source} cannot be called as make(num_envs, device, seed{''.join(f', {name}=...' for name in args)}): "
            f"{first_line(error)}"
        ) from None
    except ValueError:  # a builtin without a signature
        pass
    return as_env(make(num_envs, device, seed, **args), source)


def as_env(made: Any, source: str) -> "Env":
    """`made` itself, or wrapped if it is a vector environment of another library."""

    def has(*names: str) -> bool:
        return all(hasattr(made, name) for name in names)

    if has(*MEMBERS):
        return made
    if has("max_episode_length") and (has("single_action_space", "device") or has("get_observations", "num_actions")):
        from echelon.envs.torch_env import TorchEnv

        return TorchEnv(made)
    if has("num_envs", "single_action_space", "single_observation_space"):
        import torch

        from echelon.envs.gymnasium_env import GymnasiumEnv

        return GymnasiumEnv(made, torch.device("cpu"))
    if has("action_space", "observation_space"):
        raise UserError(
            f"{source} made one environment, not num_envs of them; return gymnasium.vector.SyncVectorEnv of many"
        )
    missing = ", ".join(name for name in MEMBERS if not has(name))
    raise UserError(f"{source} made a {type(made).__name__}, which lacks {missing}; see echelon env check")

"""Settings as plain data and by their flags; every value is checked before a run folder is written."""

import dataclasses
import functools
import re
import shlex
import types
import typing
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from echelon.config.ranges import ANY, Range
from echelon.config.schema import ForeignSettings, ForeignTrainConfig, TaskConfig, TrainConfig
from echelon.errors import UserError, nearest

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
MAX_VALUES = 1024
"""Values of one setting: there may be that many policies."""
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def spelling(name: str) -> str:
    """The flag of a field: `update.mini_epochs` is `--update.mini-epochs`."""
    return "--" + name.replace("_", "-")


def setting(name: str, value: Any) -> str:
    """What to type so that the field `name` has this value."""
    if isinstance(value, bool):
        group, dot, last = name.rpartition(".")
        return spelling(name if value else f"{group}{dot}no_{last}")
    values = value if isinstance(value, list | tuple) else [value]
    return shlex.join([spelling(name), *map(str, values)])


def require(name: str, value: float, allowed: Range) -> None:
    """Raise a `UserError` for a value outside `allowed`; `name` is the setting's dotted name."""
    if unmet := allowed.unmet(value):
        text = str(value)
        text = text if len(text) < 40 else f"a number of {len(text)} digits"
        raise UserError(f"{spelling(name)} must be {unmet}, not {text}")


def check(config: T, group: str = "") -> T:
    """Raise a `UserError` for a wrong type, a value out of range, or what the dataclass's own `check` refuses; returns
    the config, whose lists are tuples. `group` is how users spell its settings: a task's are in `env.`"""
    checked: Any = from_dict(config, to_dict(config), group)
    checked.check()
    return checked


def choose_device(name: str) -> "torch.device":
    """The torch device for `cpu`, `cuda` or `auto`, which is CUDA where there is one."""
    import torch

    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise UserError("--device cuda was asked for but torch sees no CUDA GPU; use --device cpu or auto")
    return torch.device("cuda" if there and name != "cpu" else "cpu")


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain data for JSON; the inverse of `from_dict`."""
    data = dataclasses.asdict(config)
    if isinstance(config, TrainConfig) and isinstance(config.env, ForeignSettings):
        data["env"] = dict(config.env.values)
    if isinstance(config, ForeignTrainConfig):
        data |= data.pop("foreign")
    return data


def settings_of(config: Any, group: str = "") -> dict[str, Any]:
    """The settings of a dataclass, or of nested data, by dotted name."""
    leaves: dict[str, Any] = {}
    for name, value in (to_dict(config) if dataclasses.is_dataclass(config) else config).items():
        leaves |= settings_of(value, f"{group}{name}.") if isinstance(value, Mapping) else {f"{group}{name}": value}
    return leaves


def with_settings(config: T, settings: Mapping[str, Any]) -> T:
    """`config` with other values of some settings, by dotted name."""
    for name, value in settings.items():
        group, _, inside = name.partition(".")
        new = with_settings(getattr(config, group), {inside: value}) if inside else value
        config = dataclasses.replace(config, **{group: new})  # pyright: ignore[reportArgumentType]  # T is a dataclass
    return config


def from_dict(template: T, data: dict[str, Any], group: str = "") -> T:
    """Lay `data` over `template`, in the template's own classes. Unknown keys, wrong types and numbers out of range
    fail."""
    fields, changes = _annotations(type(template)), dict[str, Any]()
    for key, value in data.items():
        name = group + key
        if key not in fields:
            raise UserError(f"{name} is not a setting{nearest(key, fields)}")
        hint, allowed = fields[key]
        current = getattr(template, key)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, dict):
                raise UserError(f"{name} takes a group of settings, not {value!r}")
            if not isinstance(current, ForeignSettings):
                changes[key] = from_dict(current, value, f"{name}.")
            else:  # those of a task without any are plain
                changes[key] = ForeignSettings(untyped(value, f"{name}.")) if value else TaskConfig()
            continue
        changes[key] = typed(value, hint, name)
        if allowed is not None and changes[key] == ():
            raise UserError(f"{spelling(name)} needs at least one value")
        if isinstance(changes[key], tuple) and len(changes[key]) > MAX_VALUES:
            raise UserError(f"{spelling(name)} takes at most {MAX_VALUES:,} values, not {len(changes[key]):,}")
        for number in changes[key] if isinstance(changes[key], tuple) else (changes[key],):
            if isinstance(number, int | float):
                require(name, number, allowed or ANY)
    return dataclasses.replace(template, **changes)  # pyright: ignore[reportArgumentType]  # T is a dataclass


@functools.cache
def _annotations(kind: type) -> dict[str, tuple[Any, Range | None]]:
    """Type and range of every field of a dataclass. A field that a subclass overrides keeps its range unless it is
    given another."""
    found: dict[str, tuple[Any, Range | None]] = {}
    for owner in reversed(kind.__mro__):
        plain = typing.get_type_hints(owner)
        for name, hint in typing.get_type_hints(owner, include_extras=True).items():
            ranges = [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Range)]
            found[name] = (plain[name], ranges[0] if ranges else found.get(name, (None, None))[1])
    return {field.name: found[field.name] for field in dataclasses.fields(kind)}


def untyped(value: Any, group: str = "") -> Any:
    """Data from JSON whose classes are unknown: lists become tuples, numbers must be finite."""
    if isinstance(value, dict):
        return {key: untyped(item, f"{group}{key}.") for key, item in value.items()}
    if isinstance(value, int | float):
        require(group.rstrip("."), value, ANY)
    return tuple(untyped(item, group) for item in value) if isinstance(value, list | tuple) else value


def kind(hint: Any) -> str:
    """An annotation in words."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, options))}"
    return kind(options[0]) if options else KINDS.get(hint, str(hint))


def typed(value: Any, hint: Any, name: str, text: bool = False) -> Any:
    """`value` as the annotation `hint` wants it, or a `UserError`. Lists from JSON become tuples; what was typed on a
    command line is `text`."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):  # or None
        unset = value is None or (text and value == "None")
        return None if unset and types.NoneType in args else typed(value, args[0], name, text)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{name} takes a list, not {value!r}")
        hints = [args[0]] * len(value) if Ellipsis in args else args
        for item in value if text and args[0] is not str else ():
            if re.fullmatch(r"[\d.]+(,[\d.]+)+", item):
                raise UserError(f"{name} takes {kind(hint)}, not {item!r}; write {name} {item.replace(',', ' ')}")
        if len(value) != len(hints):
            raise UserError(f"{name} takes {len(hints)} values, not {len(value)}: {shlex.join(map(str, value))}")
        return tuple(typed(item, hint, name, text) for item, hint in zip(value, hints, strict=True))
    found = _parsed(value, hint) if text else value
    fits = found in args if origin is Literal else isinstance(found, (int, float) if hint is float else hint)
    if not fits or (isinstance(found, bool) and hint is not bool):
        raise UserError(f"{name} takes {kind(hint)}, not {value!r}{_meant(str(value), hint)}")
    return float(found) if hint is float and abs(found) < 1e300 else found  # what is too large is in no range


def _parsed(word: str, hint: Any) -> Any:
    """A word as an annotation wants it, or the word itself where it cannot be; 1e6 is a whole number too."""
    try:
        if typing.get_origin(hint) is Literal:
            return {str(option): option for option in typing.get_args(hint)}[word]
        if hint is int and not re.fullmatch(r"[\d+_-]*", word):
            number = Decimal(word)
            return int(number) if number.adjusted() <= 30 and number == int(number) else word
        return hint(word)
    except (ValueError, ArithmeticError, LookupError):
        return word


def _meant(word: str, hint: Any) -> str:
    """Suggest the nearest choice, `1000000` for `1,000,000`, or `0.1` for `0,1`."""
    if typing.get_origin(hint) is Literal:
        return nearest("cuda" if word.lower() == "gpu" else word, map(str, typing.get_args(hint)))
    if hint is int and re.fullmatch(r"\d{1,3}([.,]\d{3})+", word):
        return f"; write {re.sub('[.,]', '', word)}"
    return f"; write {word.replace(',', '.')}" if hint is float and re.fullmatch(r"-?\d*,\d+", word) else ""

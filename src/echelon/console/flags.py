"""Dataclasses as command lines: every field is a flag, its docstring the help.

Words are read once, and the first mistake among them is one sentence. tyro prints the help pages.
"""

import dataclasses
import re
import shlex
import typing
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NoReturn

import tyro

from echelon.config.checks import setting, spelling
from echelon.config.peers import known_elsewhere_as
from echelon.errors import UserError, closest, nearest


@dataclass(frozen=True)
class Flag:
    """One way to set one field."""

    name: str
    """The field, by dotted name."""
    hint: Any
    sets: bool | None = None
    """What a switch sets it to; None for a flag that takes values."""
    metavar: str | None = None
    """Values the help page names for a field that takes others too."""


def flags_of(config: Any, group: str = "") -> dict[str, Flag]:
    """Every flag of a dataclass, or of an instance with groups of settings, by its spelling."""
    kind = config if isinstance(config, type) else type(config)
    hints, found = typing.get_type_hints(kind, include_extras=True), dict[str, Flag]()
    for field in dataclasses.fields(kind):
        name, hint, extras = group + field.name, hints[field.name], ()
        if typing.get_origin(hint) is typing.Annotated:
            hint, extras = hint.__origin__, hint.__metadata__
        if dataclasses.is_dataclass(value := getattr(config, field.name, None)):
            found |= flags_of(value, f"{name}.")
        elif hint is bool:
            found |= {setting(name, sets): Flag(name, hint, sets) for sets in (True, False)}
        elif not {tyro.conf.Fixed, tyro.conf.Positional} & set(extras):
            metavar = next((extra.metavar for extra in extras if hasattr(extra, "metavar")), None)
            aliases = [alias for extra in extras for alias in getattr(extra, "aliases", None) or ()]
            found |= {word: Flag(name, hint, None, metavar) for word in (spelling(name), *aliases)}
    return found


def show_help(config: Any, prog: str, description: str, more: str = "") -> NoReturn:
    """Print the help of every field of a dataclass or an instance, then `more`, and leave with `SystemExit(0)`."""
    kind, default = (config, {}) if isinstance(config, type) else (type(config), {"default": config})
    marks = (tyro.conf.SuppressFixed,)
    try:
        raise SystemExit(tyro.cli(kind, args=["--help"], prog=prog, description=description, config=marks, **default))
    finally:
        print(more, end="")


def spans(words: Sequence[str]) -> Iterator[list[str]]:
    """The words before the first flag, which may be none, then each flag with its values; -1 is a value."""
    starts = [i for i, word in enumerate(words) if re.match(r"-+(?![\d.-])", word)]
    for start, end in zip([0, *starts], [*starts, len(words)], strict=True):
        yield list(words[start:end])


def read(config: Any, words: Sequence[str], prog: str, also: Collection[str] = ()) -> dict[str, Any]:
    """The values that `words` give to fields of `config`, by dotted name. `also` are more flags to suggest."""
    known, given = flags_of(config), dict[str, Any]()
    first, *rest = spans(words)
    for word, *values in rest:
        typed, attached, value = word.partition("=")
        flag = known.get(typed.replace("_", "-"))
        if flag is None:
            why = ": the task comes first" if typed == "--task" else nearest_flag(typed, [*known, *also])
            raise UserError(f"{typed} is not a flag of {prog}{why}")
        found = _values(flag, typed, [value, *values] if attached else values)
        adds = flag.name in given and flag.hint == tuple[str, ...]  # names add up, as in --env-arg a=1
        given[flag.name] = (*given[flag.name], *found) if adds else found
    if first:
        raise UserError(f"{first[0]!r} is neither a flag nor the value of one; see {prog} --help")
    return given


def nearest_flag(wrong: str, known: Collection[str]) -> str:
    """Suggest the flag whose end was typed (`--epochs`), or by another library's name, or that looks most alike."""
    bare = wrong.replace("_", "-").lstrip("-")
    names, last = [flag.lstrip("-") for flag in known], bare.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == last]
    elsewhere = (known_elsewhere_as(last.replace("-", "_")) or "").replace("_", "-")
    better = same or ([elsewhere] if elsewhere in names else [name for name in names if name.endswith(f"-{last}")])
    name = better[0] if better else closest(bare, names) if len(bare) > 1 else None
    return "" if name is None else f"; did you mean --{name}?"


def _values(flag: Flag, typed: str, words: list[str]) -> Any:
    """What the words after a flag mean."""
    if flag.sets is not None:
        if words:
            raise UserError(f"{typed} takes no value; its opposite is {setting(flag.name, not flag.sets)}")
        return flag.sets
    many, parts = typing.get_origin(flag.hint) is tuple, typing.get_args(flag.hint)
    inner = parts[0] if many else flag.hint
    if not words and not many:
        raise UserError(f"{typed} needs a value: {flag.metavar or _kind(inner)}")
    size = len(parts) if many else 1
    if Ellipsis not in parts and len(words) != size:
        wanted = "one value" if size == 1 else f"{size} values"
        raise UserError(f"{typed} takes {wanted}, not {len(words)}: {shlex.join(words)}")
    found: list[Any] = []
    for word in words:
        try:
            found.append(_value(word, inner))
        except (ValueError, ArithmeticError, LookupError):
            raise UserError(f"{typed} takes {_kind(inner)}, not {word!r}{_better(typed, word, inner, many)}") from None
    return tuple(found) if many else found[0]


def _value(word: str, hint: Any) -> Any:
    """One word as an annotation wants it. A whole number may be written as 1e6 too."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return {str(option): option for option in options}[word]
    if options:  # or None
        return None if word == "None" else _value(word, options[0])
    if hint is int and not re.fullmatch(r"[\d+_-]*", word):
        number = Decimal(word)
        if number.adjusted() > 30 or number != int(number):
            raise ValueError(word)
        return int(number)
    return hint(word)


def _kind(hint: Any) -> str:
    """The annotation in words."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, options))}"
    return _kind(options[0]) if options else {int: "a whole number", float: "a number"}.get(hint, "a text")


def _better(typed: str, word: str, hint: Any, many: bool) -> str:
    """What was meant: the nearest choice, `64 64` for `64,64`, `1000000` for `1,000,000` or `0.1` for `0,1`."""
    if typing.get_origin(hint) is Literal:
        return nearest("cuda" if word.lower() == "gpu" else word, map(str, typing.get_args(hint)))
    if many and re.fullmatch(r"[\d.]+(,[\d.]+)+", word):
        return f"; write {typed} {word.replace(',', ' ')}"
    if _kind(hint) == "a whole number" and re.fullmatch(r"\d{1,3}([.,]\d{3})+", word):
        return f"; write {re.sub('[.,]', '', word)}"
    return f"; write {word.replace(',', '.')}" if re.fullmatch(r"-?\d*,\d+", word) else ""

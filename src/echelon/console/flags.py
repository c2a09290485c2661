"""Config dataclasses as command-line flags.

tyro reads the flags and prints the help. Where it refuses an input, this file finds the mistake again and says it in
one sentence, since tyro's own report is a box of several lines.
"""

import contextlib
import dataclasses
import io
import itertools
import re
import shlex
import types
import typing
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from echelon.config.peers import known_elsewhere_as
from echelon.config.spelling import spelling
from echelon.errors import UserError, closest, nearest

T = TypeVar("T")


@dataclass(frozen=True)
class Flag:
    """One way to set one field."""

    spelling: str
    """`--update.clip`, or `--env.no-velocities` for the negative of a switch."""
    opposite: str | None
    """The other spelling of a switch; None for a flag that takes a value."""
    hint: Any
    """The field's annotation."""
    metavar: str | None = None
    """Values the help page names for a field that takes others too."""


def parse(default: T, tokens: Sequence[str], prog: str, description: str | None = None) -> T:
    """`tokens` laid over `default`. `--help` prints the help of every field and leaves with `SystemExit(0)`."""
    import tyro

    refusal = io.StringIO()
    try:
        with contextlib.redirect_stderr(refusal):
            return tyro.cli(
                type(default),
                default=default,
                args=list(tokens),
                prog=prog,
                description=description,
                config=(tyro.conf.SuppressFixed,),
            )
    except SystemExit as leaving:
        if not leaving.code:
            raise
    raise UserError(explain(default, tokens, prog))


def parse_after_run(default: T, arguments: Sequence[str], command: str, description: str) -> tuple[str, T]:
    """The run folder that a command begins with, and its flags."""
    asks_help = bool({"-h", "--help"} & set(arguments))
    if not asks_help and (not arguments or arguments[0].startswith("-")):
        raise UserError(f"{command} needs a run folder first, as in echelon {command} runs/CartpoleSwingup-cpo-s0")
    run, *flags = ["RUN", "--help"] if asks_help else arguments
    return run, parse(default, flags, f"echelon {command} {run}", description)


def split_flags(arguments: Sequence[str], own: Sequence[str], prog: str) -> tuple[dict[str, list[str]], list[str]]:
    """The words after each flag of `own`, and all other flags as they stand."""
    mine: dict[str, list[str]] = {}
    rest: list[str] = []
    if arguments and not looks_like_a_flag(arguments[0]):
        raise UserError(f"{arguments[0]!r} stands where a flag was expected; see {prog} --help")
    for start, end in _spans(arguments):
        flag, attached, value = arguments[start].partition("=")
        name, words = flag.replace("_", "-"), list(arguments[start + 1 : end])
        if name not in own:
            rest += arguments[start:end]
            continue
        mine[name] = [value, *words] if attached else words
        if not mine[name]:
            raise UserError(f"{name} needs a value")
    return mine, rest


def joined(arguments: Sequence[str], name: str) -> list[str]:
    """Merge all uses of a flag into one with all their values, at the end."""
    rest: list[str] = []
    values: list[str] = []
    for start, end in _spans(arguments):
        flag, attached, value = arguments[start].partition("=")
        if flag.replace("_", "-") == name:
            values += [*([value] if attached else []), *arguments[start + 1 : end]]
        else:
            rest += arguments[start:end]
    return [*rest, *([name, *values] if len(values) else [])]


def _spans(arguments: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Start and end of each flag with its values, and of the words before the first flag."""
    starts = [i for i, word in enumerate(arguments) if looks_like_a_flag(word) or i == 0]
    return itertools.pairwise([*starts, len(arguments)])


def one_value(given: Mapping[str, list[str]], name: str, default: str) -> str:
    """The value of a flag that takes one."""
    words = given.get(name, [default])
    if len(words) > 1:
        raise UserError(f"{name} takes one value, not {len(words)}: {shlex.join(words)}")
    return words[0]


def one_count(given: Mapping[str, list[str]], name: str, default: int) -> int:
    """The value of a flag that takes one positive whole number."""
    word = one_value(given, name, str(default))
    if not word.isdecimal() or int(word) < 1:
        raise UserError(f"{name} takes a whole number of at least 1, not {word!r}")
    return int(word)


def explain(default: Any, tokens: Sequence[str], prog: str) -> str:
    """The first mistake in `tokens`, as one sentence."""
    known = flags_of(default)
    waiting = deque(tokens)
    while waiting:
        token = waiting.popleft()
        spelling, attached, value = token.partition("=")
        if not spelling.startswith("-"):
            return f"{token!r} stands where a flag was expected; see {prog} --help"
        flag = known.get(spelling.replace("_", "-"))
        if flag is None:
            if spelling in ("-h", "--help"):
                continue
            if spelling.lstrip("-") in _fixed(default):
                return f"{spelling} is not a flag: it is given by its place, as in {prog}"
            return f"{spelling} is not a flag of {prog}{_nearest_flag(spelling, known)}"
        values = [value] if attached else []
        while not attached and waiting and not looks_like_a_flag(waiting[0]):
            values.append(waiting.popleft())
        mistake = _mistake(flag, values)
        if mistake is not None:
            return mistake
    return f"these flags were not understood: {shlex.join(tokens)}; see {prog} --help"


def flags_of(config: Any, group: str = "") -> dict[str, Flag]:
    """Every flag of a config by its spelling. Fields that tyro keeps fixed have none."""
    flags: dict[str, Flag] = {}
    hints, extras, fixed = typing.get_type_hints(type(config)), _extras(config), _fixed(config)
    for field in dataclasses.fields(config):
        hint, value = hints[field.name], getattr(config, field.name)
        if field.name in fixed:
            continue
        if dataclasses.is_dataclass(value):
            flags |= flags_of(value, f"{group}{field.name}.")
            continue
        yes, no = spelling(group + field.name), spelling(f"{group}no_{field.name}")
        switch = hint is bool
        metavar = next((extra.metavar for extra in extras[field.name] if hasattr(extra, "metavar")), None)
        flags[yes] = Flag(yes, no if switch else None, hint, metavar)
        if switch:
            flags[no] = Flag(no, yes, hint)
    return flags


def _fixed(config: Any) -> list[str]:
    """Names of fields that have no flag."""
    import tyro

    return [name for name, extras in _extras(config).items() if tyro.conf.Fixed in extras]


def _extras(config: Any) -> dict[str, tuple[Any, ...]]:
    """tyro's markers in the annotations of a config's fields, by name."""
    hints = typing.get_type_hints(type(config), include_extras=True)
    return {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}


def looks_like_a_flag(token: str) -> bool:
    """Negative numbers are values."""
    return token.startswith("-") and not token.lstrip("-")[:1].isdigit() and token[1:2] != "."


def _nearest_flag(wrong: str, known: Mapping[str, Flag]) -> str:
    """A flag whose last part was typed without its group, or by another library's name, is nearer than any that merely
    looks alike."""
    bare = wrong.replace("_", "-").lstrip("-")
    names, last = [flag.lstrip("-") for flag in known], bare.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == last]
    elsewhere = (known_elsewhere_as(last.replace("-", "_")) or "").replace("_", "-")
    name = same[0] if same else elsewhere if elsewhere in names else closest(bare, names)
    return "" if name is None else f"; did you mean --{name}?"


def _mistake(flag: Flag, values: list[str]) -> str | None:
    """What is wrong with the values given to a flag, or None."""
    if flag.opposite is not None:
        return f"{flag.spelling} takes no value; its opposite is {flag.opposite}" if values else None
    many = typing.get_origin(flag.hint) is tuple
    if not values and not many:
        return f"{flag.spelling} needs a value: {flag.metavar or _kind(flag.hint)}"
    if len(values) > 1 and not many:
        return f"{flag.spelling} takes one value, not {len(values)}: {shlex.join(values)}"
    parts = typing.get_args(flag.hint)
    if many and Ellipsis not in parts and len(values) != len(parts):
        return f"{flag.spelling} takes {len(parts)} values, not {len(values)}"
    inner = parts[0] if many else flag.hint
    for value in values:
        if not _fits(value, inner):
            better = _better_value(value, inner)
            if many and all(_fits(part, inner) for part in value.split(",")):
                better = f"; write {flag.spelling} {value.replace(',', ' ')}"
            return f"{flag.spelling} takes {_kind(inner)}, not {value!r}{better}"
    return None


def _fits(value: str, hint: Any) -> bool:
    """Whether a word can be read as what the annotation asks for."""
    if typing.get_origin(hint) is Literal:
        return value in map(str, typing.get_args(hint))
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return any(_fits(value, part) for part in typing.get_args(hint))
    if hint is types.NoneType:
        return value == "None"
    if hint in (int, float):
        with contextlib.suppress(ValueError):
            hint(value)
            return True
        return False
    return True


def _kind(hint: Any) -> str:
    """The annotation in words."""
    parts = [part for part in typing.get_args(hint) if part is not types.NoneType]
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if parts:
        return _kind(parts[0])
    return {int: "a whole number", float: "a number"}.get(hint, "a text")


def _better_value(value: str, hint: Any) -> str:
    """The nearest choice, or `1000000` for a whole number written as `1e6` or `1,000,000`, or `0.1` for `0,1`."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return nearest("cuda" if value.lower() == "gpu" else value, [str(part) for part in parts])
    if hint is int or int in parts:
        with contextlib.suppress(ValueError, OverflowError):
            plain = re.sub(r"(?<=\d)[.,](?=\d{3}\b)", "", value) if value.count(".") != 1 else value
            if float(plain) == int(float(plain)):
                return f"; write {int(float(plain))}"
    elif re.fullmatch(r"-?\d*,\d+", value):
        return f"; write {value.replace(',', '.')}"
    return ""

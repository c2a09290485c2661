"""Dataclasses as command lines: every field is a flag, its docstring the help. Words are read once, and the first
mistake among them is one sentence. tyro prints the help pages."""

import dataclasses
import re
import shlex
import typing
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import tyro

from echelon.config.checks import kind, setting, spelling, typed
from echelon.config.peers import known_elsewhere_as
from echelon.errors import UserError, closest


class Flag(NamedTuple):
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
    owner = config if isinstance(config, type) else type(config)
    hints, found = typing.get_type_hints(owner, include_extras=True), dict[str, Flag]()
    for field in dataclasses.fields(owner):
        name, hint, extras = group + field.name, hints[field.name], ()
        if typing.get_origin(hint) is typing.Annotated:
            hint, extras = hint.__origin__, hint.__metadata__
        if dataclasses.is_dataclass(value := getattr(config, field.name, None)):
            inner = flags_of(value, f"{name}.")
            if any(getattr(extra, "prefix_name", None) is False for extra in extras):  # they have a short form too
                found |= dict(zip(flags_of(value, f"{field.name}."), inner.values(), strict=True))
            found |= inner
        elif hint is bool:
            found |= {setting(name, sets): Flag(name, hint, sets) for sets in (True, False)}
        elif not {tyro.conf.Fixed, tyro.conf.Positional} & set(extras):
            metavar = next((extra.metavar for extra in extras if hasattr(extra, "metavar")), None)
            aliases = [alias for extra in extras for alias in getattr(extra, "aliases", None) or ()]
            found |= {word: Flag(name, hint, None, metavar) for word in (spelling(name), *aliases)}
    return found


def show_help(config: Any, prog: str, description: str, more: str = "") -> NoReturn:
    """Print the help of every field of a dataclass or an instance, then `more`, and leave with `SystemExit(0)`."""
    owner, default = (config, {}) if isinstance(config, type) else (type(config), {"default": config})
    marks = (tyro.conf.SuppressFixed,)
    try:
        raise SystemExit(tyro.cli(owner, args=["--help"], prog=prog, description=description, config=marks, **default))
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
    for (word, attached, value), *values in ((span[0].partition("="), *span[1:]) for span in rest):
        flag = known.get(word.replace("_", "-"))
        if flag is None:
            why = ": the task comes first" if word == "--task" else nearest_flag(word, [*known, *also])
            if word.startswith("--randomise.") and not any(flag.startswith("--randomise.") for flag in known):
                why = ": only tasks on Echelon's MuJoCo can be randomised"
            raise UserError(f"{word} is not a flag of {prog}{why}")
        found = _values(flag, word, [value, *values] if attached else values)
        adds = flag.name in given and flag.hint == tuple[str, ...]  # names add up, as in --env-arg a=1
        given[flag.name] = (*given[flag.name], *found) if adds else found
    if first:
        raise UserError(f"{first[0]!r} is neither a flag nor the value of one; see {prog} --help")
    return given


def nearest_flag(wrong: str, known: Collection[str]) -> str:
    """Suggest the flag whose end was typed (`--epochs`), or by another library's name, or that looks most alike."""
    bare = re.sub(r"^no-(.+\.)", r"\1no-", wrong.replace("_", "-").lstrip("-"))  # --no-pull.x is --pull.no-x
    names, last = [flag.lstrip("-") for flag in known], bare.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == last]
    elsewhere = (known_elsewhere_as(last.replace("-", "_")) or "").replace("_", "-")
    better = [elsewhere] if elsewhere in names else same or [name for name in names if name.endswith(f"-{last}")]
    name = better[0] if better else closest(bare, names) if len(bare) > 1 else None
    return "" if name is None else f"; did you mean --{name}?"


def _values(flag: Flag, word: str, values: list[str]) -> Any:
    """What the values after a flag mean."""
    if flag.sets is not None:
        if values:
            raise UserError(f"{word} takes no value; its opposite is {setting(flag.name, not flag.sets)}")
        return flag.sets
    if typing.get_origin(flag.hint) is tuple:
        return typed(values, flag.hint, word, text=True)
    if not values:
        raise UserError(f"{word} needs a value: {flag.metavar or kind(flag.hint)}")
    if len(values) > 1:
        raise UserError(f"{word} takes one value, not {len(values)}: {shlex.join(values)}")
    return typed(values[0], flag.hint, word, text=True)

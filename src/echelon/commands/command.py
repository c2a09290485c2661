"""The base class of commands, and how their arguments are parsed."""

import dataclasses
import inspect
import shlex
import textwrap
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Annotated, Any, ClassVar, TypeVar

import tyro

from echelon.config.checks import check, spelling
from echelon.console.flags import flags_of, read, show_help, spans
from echelon.errors import UserError

TrainFlags = tyro.conf.Fixed[tuple[str, ...]]
"""Arguments that are passed on to `echelon train`; the field's name is `train_flags`."""


@dataclass(frozen=True)
class Needs:
    """A required first argument, for the error message if it is missing."""

    what: str
    example: str


def place(metavar: str) -> Any:
    """Name a positional argument in the help page."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


RunPath = Annotated[tyro.conf.Positional[str], place("RUN"), Needs("a run folder", "runs/CartpoleSwingup-cpo-s0")]


@dataclass(frozen=True)
class Command:
    """A parsed command line."""

    refused: ClassVar[Mapping[str, str]] = {}
    """Flags that users may expect of this command, and the end of the error message for each."""
    help_of_task: ClassVar[bool] = False
    """Whether --help after a task lists that task's settings."""
    line: tyro.conf.Fixed[str] = field(default="", kw_only=True)
    """As it was typed."""

    @classmethod
    def more_help(cls) -> str:
        """Text of the help page after the flags."""
        return ""

    def check(self) -> None:
        """Raise a `UserError` for flags that do not go together."""

    def run(self) -> int:
        """Run the command; returns the exit code."""
        raise NotImplementedError


C = TypeVar("C", bound=Command)


def find(name: str) -> type[Command]:
    """The class of a command: `ImportConfig` of `import_config.py` for import-config."""
    module = import_module(f"echelon.commands.{name.replace('-', '_')}")
    return getattr(module, name.title().replace("-", ""))


def names_flag(words: Sequence[str], name: str) -> bool:
    """Whether the user typed a flag."""
    return any(word.partition("=")[0].replace("_", "-") == name for word in words)


def parse(kind: type[C], name: str, words: Sequence[str]) -> C:
    """The command that the words after its name describe. `--help` prints its help page and leaves."""
    prog, passes_on = f"echelon {name}", "train_flags" in (hints := typing.get_type_hints(kind, include_extras=True))
    first, *rest = spans(words)
    places = {key: hint for key, hint in hints.items() if tyro.conf.Positional in getattr(hint, "__metadata__", ())}
    required = [f.name for f in dataclasses.fields(kind) if f.name in places and f.default is dataclasses.MISSING]
    needs = [extra for key in required for extra in places[key].__metadata__ if isinstance(extra, Needs)]
    asks_help = {"-h", "--help"} & set(words[:1] if kind.help_of_task else words)
    if asks_help or (len(first) < len(required) and not needs):
        _show_help(kind, prog)
    if len(first) < len(required):
        raise UserError(f"{name} needs {needs[0].what} first, as in {prog} {needs[0].example}")
    values: dict[str, Any] = dict(zip(places, first, strict=False))
    if any(typing.get_origin(hint.__origin__) is tuple for hint in places.values()):
        values, first = dict.fromkeys(places, tuple(first)), []
    known = flags_of(kind)
    if len(first) > len(places) and not known:
        many = {0: "no arguments", 1: "one argument"}.get(len(places), f"{len(places)} arguments")
        raise UserError(f"{prog} takes {many}, but got {shlex.join(first)}")
    prog = shlex.join(["echelon", name, *first[: len(places)]])
    own, others = list[str](first[len(places) :]), list[str]()
    for span in rest:
        typed = span[0].partition("=")[0].replace("_", "-")
        if typed in kind.refused:
            raise UserError(f"{typed} is not a flag of echelon {name}{kind.refused[typed]}")
        (own if typed in known or not passes_on else others).extend(span)
    values |= read(kind, own, prog)
    for key, value in values.items():
        if value == () and key not in places:
            raise UserError(f"{spelling(key)} needs a value")
    values |= {"train_flags": tuple(others)} if passes_on else {}
    made = kind(**values, line=shlex.join(["echelon", name, *words]))
    check(made)
    made.check()
    return made


def _show_help(kind: type[Command], prog: str) -> None:
    """Print the help page and leave."""
    try:
        show_help(kind, prog, textwrap.indent(inspect.getdoc(kind) or "", "  "))
    finally:
        print(kind.more_help(), end="")

"""The base class of commands, and how their arguments are parsed."""

import dataclasses
import inspect
import shlex
import textwrap
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import tyro

from echelon.config.checks import check, spelling, with_settings
from echelon.console.flags import flags_of, read, show_help, spans
from echelon.errors import UserError, nearest

if TYPE_CHECKING:
    from echelon.runs.checkpoint import Which
    from echelon.runs.folder import RunFolder

POLICIES = Path(__file__).resolve().parents[3] / "results" / "policies"
"""Policies that come with a clone of the repository."""
TrainFlags = tyro.conf.Fixed[tuple[str, ...]]
"""Arguments that are passed on to `echelon train`; the field's name is `train_flags`."""


EXPECTED = {
    "--headless": ": no command opens a window",
    **dict.fromkeys(("--video", "--render"), "; echelon record RUN films a run, echelon train has --film-every"),
}
"""Flags of other libraries' commands, and the end of the error message for each."""


def place(metavar: str) -> Any:
    """Name a positional argument in the help page."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


@dataclass(frozen=True)
class Command:
    """A parsed command line."""

    needs: ClassVar[str] = ""
    """The end of the error message if a required argument is missing; without one, the help page is shown."""
    refused: ClassVar[dict[str, str]] = {}
    """More flags that users may expect of this command, and the end of the error message for each."""
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

    def run(self) -> int | None:
        """Run the command; returns the exit code if that is not 0."""
        raise NotImplementedError


@dataclass(frozen=True)
class OnRun(Command):
    """A command about one run."""

    needs = "a run folder first, as in echelon {} runs/CartpoleSwingup-cpo-s0"

    run_folder: Annotated[tyro.conf.Positional[str], place("RUN")]
    """The run."""
    checkpoint: str = "newest"
    """Which checkpoint to take: newest, best, or the iteration it was saved after."""
    checkpoints: ClassVar[tuple[str, ...]] = ("newest", "best")

    def check(self) -> None:
        if self.checkpoint not in self.checkpoints and not self.checkpoint.isdecimal():
            known = f"{', '.join(self.checkpoints)} or the number of an iteration"
            hint = nearest(self.checkpoint, self.checkpoints)
            if "/" in self.checkpoint:  # as elsewhere, where a checkpoint is a file
                hint = f"; the run comes first, as in echelon {type(self).__name__.lower()} RUN --checkpoint 250"
            raise UserError(f"--checkpoint takes {known}, not {self.checkpoint!r}{hint}")

    @property
    def which(self) -> "Which":
        given = self.checkpoint
        return int(given) if given.isdecimal() else "best" if given == "best" else "newest"

    def folder(self) -> "RunFolder":
        from echelon.runs.folder import RunFolder

        return RunFolder.open(self.run_folder)


@dataclass(frozen=True)
class OnPolicies(OnRun):
    """A command that shows policies of a run, or without one a policy that was exported."""

    run_folder: Annotated[tyro.conf.Positional[str], place("[RUN]")] = ""
    """The run; without it, --policy is a file of echelon export or a name from results/policies."""
    policy: str = "leader"

    @property
    def shown(self) -> str:
        """Which policies of the run to show; a file has one."""
        return self.policy if self.run_folder else "leader"

    def source(self) -> "RunFolder | Path":
        """The run, or if none is given the exported policy's file; a `UserError` if there is none of this name."""
        if self.run_folder:
            return self.folder()
        if self.policy in ("leader", "all") or self.policy.isdecimal():
            name = type(self).__name__.lower()
            raise UserError(f"{name} needs {self.needs.format(name)}, or --policy with the name of an exported policy")
        if self.checkpoint != "newest":
            raise UserError("an exported policy has no checkpoints; leave out --checkpoint")
        if (given := Path(self.policy)).suffix in (".npz", ".onnx"):
            if not given.is_file():
                raise UserError(f"there is no file {given}")
            return given
        known = {path.parent.name: path for path in sorted(POLICIES.glob("*/policy.*"))}
        if not known:
            raise UserError(
                "trained policies come with Echelon's repository, in results/policies: clone it and install it from "
                "there, or give --policy the path of a file that echelon export wrote"
            )
        if self.policy not in known:
            hint = nearest(self.policy, known) or f"; there are {', '.join(known)}"
            raise UserError(f"{self.policy} is not a policy in results/policies{hint}")
        return known[self.policy]


C = TypeVar("C", bound=Command)


def find(name: str) -> type[Command]:
    """The class of a command: `ImportConfig` of `import_config.py` for import-config."""
    file = "lists" if name in ("tasks", "variants") else name.replace("-", "_")
    return getattr(import_module(f"echelon.commands.{file}"), name.title().replace("-", ""))


def names_flag(words: Sequence[str], name: str) -> bool:
    """Whether the user typed a flag."""
    return any(word.partition("=")[0].replace("_", "-") == name for word in words)


def parse(kind: type[C], name: str, words: Sequence[str]) -> C:
    """The command that the words after its name describe. `--help` prints its help page and leaves."""
    hints, (first, *rest) = typing.get_type_hints(kind, include_extras=True), spans(words)
    places = [x for x in dataclasses.fields(kind) if tyro.conf.Positional in getattr(hints[x.name], "__metadata__", ())]
    missing = len(first) < sum(x.default is dataclasses.MISSING for x in places)
    asks_help = {"-h", "--help"} & set(words[:1] if kind.help_of_task else words)
    if asks_help or (missing and not kind.needs):
        show_help(kind, f"echelon {name}", textwrap.indent(inspect.getdoc(kind) or "", "  "), kind.more_help())
    if missing:
        raise UserError(f"{name} needs {kind.needs.format(name)}")
    values: dict[str, Any] = {x.name: word for x, word in zip(places, first, strict=False)}
    if places and typing.get_origin(hints[places[0].name].__origin__) is tuple:
        values, first = {places[0].name: tuple(first)}, []
    prog = shlex.join(["echelon", name, *first[: len(places)]])
    known, own, others = flags_of(kind), list(first[len(places) :]), list[str]()
    refused = EXPECTED | kind.refused
    for span in rest:
        typed = span[0].partition("=")[0].replace("_", "-")
        if typed in refused:
            raise UserError(f"{typed} is not a flag of echelon {name}{refused[typed]}")
        (own if typed in known or "train_flags" not in hints else others).extend(span)
    given = read(kind, own, prog)
    for key, value in given.items():
        if value == ():
            raise UserError(f"{spelling(key)} needs a value")
    given |= {"train_flags": tuple(others)} if "train_flags" in hints else {}
    made = with_settings(kind(**values, line=shlex.join(["echelon", name, *words])), given)
    check(made)
    return made

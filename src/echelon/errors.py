"""Errors for mistakes a user can make, one sentence each."""

import difflib
from collections.abc import Iterable
from importlib.machinery import PathFinder
from importlib.util import find_spec

MAX_LETTERS = 2000
"""Longest sentence: what it quotes may be untrusted."""


class UserError(Exception):
    """A mistake of the caller's. The message is one sentence; the command line prints it without a traceback."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= MAX_LETTERS else f"{text[: MAX_LETTERS // 2]} ... {text[-MAX_LETTERS // 2 :]}"


class SaidElsewhere(UserError):
    """A mistake that another process has already reported: this one ends silently."""


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that looks most like `word`, or None when none is close."""
    by_lower = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[matches[0]] if matches else None


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the closest known word, or an empty string when none is close."""
    found = closest(word, known)
    return "" if found is None else f"; did you mean {found}?"


def first_line(error: Exception) -> str:
    """The first line of an error's message, to quote inside a sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def install(extra: str) -> str:
    """How to install what an optional part needs. Echelon is not on PyPI, where its name may become another's."""
    return f"pip install -e '.[{extra}]' in Echelon's clone"


def is_installed(module: str) -> bool:
    """Whether a package, or `package.part`, is there. It is not imported: MuJoCo fails where MUJOCO_GL is wrong."""
    package, _, part = module.partition(".")
    found = find_spec(package)
    if found is None or not part:
        return found is not None
    return PathFinder.find_spec(module, found.submodule_search_locations) is not None


def require_package(module: str, purpose: str, extra: str) -> None:
    """Raise a `UserError` where an optional package is missing: `purpose` needs it."""
    if not is_installed(module):
        raise UserError(f"{purpose} needs the package {module}, which is not installed; {install(extra)}")

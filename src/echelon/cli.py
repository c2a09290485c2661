"""The command line: the overview, and dispatch from a command's name to its file in `commands/`. A mistake is one
sentence on standard error and exit code 2."""

import io
import os
import signal
import sys
import warnings
from collections.abc import Sequence

from echelon import __version__
from echelon.commands import INTERRUPTED
from echelon.errors import SaidElsewhere, UserError, nearest

OVERVIEW = """\
usage: echelon COMMAND ...

Train one robot policy with the help of many.

commands:
  tasks                      list the tasks
  variants                   list the named changes of settings: ablations and controls
  train TASK [flags]         train, or resume: the same command resumes where it stopped
  train --env SOURCE ...     the same in an environment from elsewhere: gymnasium:Walker2d-v5, mypackage.module:make
  distil RUN [flags]         train a student that imitates a run and sees less: --obs policy
  evaluate RUN [flags]       score every policy of a run
  compare --tasks TASK ...   train a grid of algorithms, variants and seeds, then report
  sweep TASK --over ...      find good values of settings
  report RUN... [flags]      show what runs did, in one page
  paper NAME [flags]         train and draw a table or figure of the paper
  record RUN [flags]         film its policies, or show them in 3D
  play RUN [flags]           show a policy live in the browser
  bench TASK [flags]         show where an iteration's time goes
  export RUN [flags]         write a policy as one file: ONNX or NumPy
  new-task NAME              write the skeleton of a task of your own
  env check SOURCE [flags]   try an environment of your own out against the contract
  import-config FILE         translate the settings of rsl_rl, rl_games, skrl or Stable-Baselines3
  doctor                     show what is installed, and how to install what is missing

echelon COMMAND --help says more, echelon train TASK --help lists every setting of a task.
"""
COMMANDS = [*dict.fromkeys(line.split()[0] for line in OVERVIEW.splitlines() if line.startswith("  "))]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a path may not be valid text
    if argv is None:
        sys.unraisablehook = _unraisable
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
            return _dispatch(arguments)
    except SaidElsewhere:
        return 2
    except UserError as error:
        print(f"echelon: {error}", file=sys.stderr)
        return 2
    except SystemExit as leaving:  # tyro leaves this way once it has printed a help page
        return leaving.code if isinstance(leaving.code, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `echelon tasks | head` closed its end; nothing more can be written there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    finally:
        if argv is None:  # the process ends now: an interrupt would only print a traceback
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _unraisable(lost: "sys.UnraisableHookArgs") -> None:
    """Print an exception that Python cannot raise, except a Ctrl-C that happened to meet a destructor."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)


def _dispatch(arguments: list[str]) -> int:
    """Hand the rest of the line to its command."""
    if found := [word for word in arguments if "\0" in word]:  # only from Python: a shell cannot pass it
        raise UserError(f"{found[0]!r} has a null byte, which no value may have")
    name, *words = arguments or ["--help"]
    if name in ("-h", "--help", "--version"):
        print(f"echelon {__version__}" if name == "--version" else OVERVIEW.rstrip())
        return 0
    if name not in COMMANDS:
        known = ("" if name.startswith("-") else nearest(name, COMMANDS)) or "; there are " + ", ".join(COMMANDS)
        raise UserError(f"{name} is not a command of echelon{known}")
    from echelon.commands.command import find, parse

    try:
        command = parse(find(name), name, words)
    except UserError as error:  # all processes of torchrun are given the same line: one of them reports its mistakes
        raise (error if os.environ.get("RANK", "0") == "0" else SaidElsewhere(str(error))) from None
    return command.run() or 0


if __name__ == "__main__":
    sys.exit(main())

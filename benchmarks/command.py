"""What the benchmarks' commands have in common."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from echelon.errors import UserError

Row = dict[str, Any]


def command(main: Callable[[], None]) -> None:
    """Run a script: what a user got wrong is one sentence, not a traceback."""
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")


def options(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the script's docstring."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def in_a_process(script: str, order: Any) -> Any:
    """What `answer` in another process of this script says to an order; None where it failed, and said why itself."""
    done = subprocess.run([sys.executable, script, "--order", json.dumps(order)], stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def answer(work: Callable[[Any], Any]) -> bool:
    """In the process that was given an order: do it and print what came of it. False in any other."""
    if sys.argv[1:2] != ["--order"]:
        return False
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    answers.write(json.dumps(work(json.loads(sys.argv[2])), default=lambda number: number.item()))  # NumPy's
    answers.close()
    return True


def append(path: Path | None, rows: Iterable[Row]) -> None:
    """Lines of JSON at the end of a file, if there shall be one."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def read_lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def markdown(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table."""
    head, *body = (f"| {' | '.join(map(str, cells))} |" for cells in (headings, *rows))
    return "\n".join([head, "|" + "---|" * len(headings), *body])

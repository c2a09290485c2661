"""A benchmark as a command: what a user got wrong is one sentence, not a traceback."""

import sys
from collections.abc import Callable

from echelon.errors import UserError


def command(main: Callable[[], None]) -> None:
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")

"""How a setting is typed on the command line."""

import shlex
from typing import Any


def spelling(name: str) -> str:
    """The flag of a field: `update.mini_epochs` is `--update.mini-epochs`."""
    return "--" + name.replace("_", "-")


def setting(name: str, value: Any) -> str:
    """What to type so that the field `name` has this value."""
    if isinstance(value, bool):
        group, _, last = name.rpartition(".")
        return spelling(name) if value else spelling(f"{group}.no_{last}" if group else f"no_{last}")
    values = value if isinstance(value, list | tuple) else [value]
    return shlex.join([spelling(name), *map(str, values)])

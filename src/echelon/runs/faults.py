"""`diagnostics/faults.json`: the first simulations of a run that went wrong, for `echelon replay-fault` to show."""

import json
from collections.abc import Sequence
from typing import Any

from echelon.errors import UserError
from echelon.runs.durable import replace_durably, writing
from echelon.runs.folder import RunFolder
from echelon.runs.json_lines import finite

FILE = "diagnostics/faults.json"
MAX_FAULTS = 8
"""A run keeps the first ones: later ones often follow from them."""


def keep_faults(folder: RunFolder, iteration: int, faults: Sequence[dict[str, Any]]) -> None:
    """Add faults to those of a run, as long as it has few. Each has the `policy` that drove it."""
    path = folder.path / FILE
    known = _read(folder)
    found = [{"iteration": iteration} | one for one in faults]
    if not found or len(known) >= MAX_FAULTS:
        return
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        replace_durably(path, json.dumps(finite((known + found)[:MAX_FAULTS])).encode())


def with_policies(faults: Sequence[dict[str, Any]], policy_id: Sequence[int]) -> list[dict[str, Any]]:
    """Faults with the policy of each; `policy_id` `[N]` says who drives each environment."""
    return [{"policy": policy_id[fault["environment"]]} | fault for fault in faults]


def read_faults(folder: RunFolder) -> list[dict[str, Any]]:
    """The faults of a run; a `UserError` if there are none."""
    found = _read(folder)
    if not found:
        raise UserError(f"{folder.path} has no simulation on record that went wrong")
    return found


def _read(folder: RunFolder) -> list[dict[str, Any]]:
    path = folder.path / FILE
    if not path.exists():
        return []
    try:
        document = json.loads(path.read_text())
        if isinstance(document, list) and all(isinstance(one, dict) for one in document):
            return document
    except (OSError, ValueError, RecursionError):
        pass
    raise UserError(f"{path} is not whole; remove it")

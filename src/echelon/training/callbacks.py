"""What is asked after every iteration: whether to go on, and whether there is something to say.

A callback gets the iteration's metrics by name. It may return a text, which is shown; a `Stop`, which saves the run and
ends it well; or nothing.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from echelon.errors import UserError, nearest

COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True)
class Stop:
    """End training after this iteration."""

    reason: str


Callback = Callable[[Mapping[str, float]], "Stop | str | None"]


def until(condition: str) -> Callback:
    """Stop once a metric passes a value: `return/leader>=500`, `env/distance<0.02`."""
    found = re.fullmatch(r"\s*([\w/.+-]+?)\s*(>=|<=|>|<)\s*(\S+)\s*", condition)
    try:
        name, comparison, value = found.groups() if found else ("", "", "")
        limit = float(value)
    except ValueError:
        raise UserError(f"--until takes a metric and a limit, as in return/leader>=500, not {condition!r}") from None

    def ask(metrics: Mapping[str, float]) -> Stop | None:
        if name not in metrics:
            raise UserError(f"--until {condition}: {name} is not a metric of this run{nearest(name, metrics)}")
        value = metrics[name]
        if math.isfinite(value) and COMPARISONS[comparison](value, limit):
            return Stop(f"{name} is {value:.6g}")
        return None

    return ask


def no_better_for(iterations: int, metric: str = "return/leader") -> Callback:
    """Stop when the highest value of a metric is this many iterations old."""
    best, since = -math.inf, 0

    def ask(metrics: Mapping[str, float]) -> Stop | None:
        nonlocal best, since
        value = metrics[metric]
        best, since = (value, 0) if value > best else (best, since + 1)
        return Stop(f"{metric} has not risen above {best:.6g} for {since} iterations") if since >= iterations else None

    return ask


def ask(callbacks: Sequence[Callback], metrics: Mapping[str, float], say: Callable[[str], None]) -> Stop | None:
    """What they answer: texts are said, the first `Stop` is returned."""
    answers = [callback(metrics) for callback in callbacks]
    for answer in answers:
        if isinstance(answer, str):
            say(answer)
    return next((answer for answer in answers if isinstance(answer, Stop)), None)

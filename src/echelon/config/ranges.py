"""Allowed ranges of numbers among the settings, `Annotated[float, POSITIVE]`, and the sentence for a value outside."""

import math
import typing
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from echelon.config.spelling import spelling
from echelon.errors import UserError


@dataclass(frozen=True)
class Range:
    """Values a field may have."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    """Whether `low` itself is left out."""
    open_high: bool = False
    ceiling: float = 1e12
    """Largest magnitude that makes sense."""

    def up_to(self, ceiling: float) -> "Range":
        return replace(self, ceiling=ceiling)

    def __contains__(self, value: float) -> bool:
        inside = self.low <= value <= self.high and abs(value) <= self.ceiling
        left_out = (self.open_low and value == self.low) or (self.open_high and value == self.high)
        return inside and not left_out

    def __str__(self) -> str:
        if self.high == math.inf:
            if self.low == -math.inf:
                return "finite"
            return f"above {self.low:.15g}" if self.open_low else f"at least {self.low:.15g}"
        if self.open_low:
            return f"above {self.low:.15g} and {'below' if self.open_high else 'at most'} {self.high:.15g}"
        return f"within {self.low:.15g} and {self.high:.15g}"


COUNT = Range(low=1)
SEEDS = COUNT.up_to(256)
"""How many seeds can train side by side."""
NOT_NEGATIVE = Range(low=0)
POSITIVE = Range(low=0, open_low=True)
SHARE = Range(low=0, high=1)
FRACTION = Range(low=0, high=1, open_low=True)
FACTOR = Range(low=1)
ANY = Range()


def require(name: str, value: float, allowed: Range) -> None:
    """Raise a `UserError` for a value outside `allowed`; `name` is the setting's dotted name."""
    if value in allowed:
        return
    text = str(value)
    text = text if len(text) < 40 else f"a number of {len(text)} digits"
    if value != value or abs(value) == math.inf:
        raise UserError(f"{spelling(name)} must be {ANY}, not {text}")
    if abs(value) > allowed.ceiling and allowed.low <= value <= allowed.high:
        end = f"at most {allowed.ceiling:,.15g}" if value > 0 else f"at least {-allowed.ceiling:,.15g}"
        raise UserError(f"{spelling(name)} must be {end}, not {text}")
    raise UserError(f"{spelling(name)} must be {allowed}, not {text}")


def ranges_of(config: Any, group: str = "") -> dict[str, Range]:
    """The ranges in the annotations of a config's fields, by dotted name. An overridden field keeps its range unless
    it is given another."""
    found: dict[str, Range] = {}
    for kind in reversed(type(config).__mro__):
        for name, hint in typing.get_type_hints(kind, include_extras=True).items():
            for extra in getattr(hint, "__metadata__", ()):
                if isinstance(extra, Range):
                    found[group + name] = extra
    for field in fields(config):
        if is_dataclass(value := getattr(config, field.name)):
            found |= ranges_of(value, f"{group}{field.name}.")
    return found

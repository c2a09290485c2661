"""Allowed ranges of numbers among the settings, and the sentence for a value outside."""

import math
from dataclasses import dataclass

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

    def __contains__(self, value: float) -> bool:
        inside = self.low <= value <= self.high
        left_out = (self.open_low and value == self.low) or (self.open_high and value == self.high)
        return math.isfinite(value) and inside and not left_out

    def __str__(self) -> str:
        if self.high == math.inf:
            if self.low == -math.inf:
                return "finite"
            return f"above {self.low:.15g}" if self.open_low else f"at least {self.low:.15g}"
        if self.open_low:
            return f"above {self.low:.15g} and {'below' if self.open_high else 'at most'} {self.high:.15g}"
        return f"within {self.low:.15g} and {self.high:.15g}"


COUNT = Range(low=1)
NOT_NEGATIVE = Range(low=0)
POSITIVE = Range(low=0, open_low=True)
SHARE = Range(low=0, high=1)
FRACTION = Range(low=0, high=1, open_low=True)
FACTOR = Range(low=1)
ANY = Range()


def require(name: str, value: float, allowed: Range) -> None:
    """Raise a `UserError` for a value outside `allowed`; `name` is the setting's dotted name."""
    if value not in allowed:
        raise UserError(f"{spelling(name)} must be {allowed if math.isfinite(value) else ANY}, not {value}")

"""Allowed ranges of numbers among the settings, as in `Annotated[float, POSITIVE]`."""

import math
from dataclasses import dataclass, replace

from echelon.errors import UserError


@dataclass(frozen=True)
class Range:
    """Values that a number may have; the ends are included unless they are open."""

    low: float = -1e12
    high: float = 1e12
    open_low: bool = False
    open_high: bool = False

    def up_to(self, high: float) -> "Range":
        return replace(self, high=high)

    def unmet(self, value: float) -> str | None:
        """What a value outside the range must be, in words; None for a value inside."""
        if value != value or abs(value) == math.inf:
            return "finite"
        if value < self.low or (self.open_low and value == self.low):
            return f"{'above' if self.open_low else 'at least'} {self.low:,.15g}"
        if value > self.high or (self.open_high and value == self.high):
            return f"{'below' if self.open_high else 'at most'} {self.high:,.15g}"
        return None


ANY = Range()
COUNT = Range(low=1)
SEEDS = COUNT.up_to(256)
"""How many seeds can train side by side."""
NOT_NEGATIVE = Range(low=0)
POSITIVE = Range(low=0, open_low=True)
SHARE = Range(low=0, high=1)
FRACTION = Range(low=0, high=1, open_low=True)
FACTOR = Range(low=1)


def places_of(flag: str, word: str, width: int, what: str) -> range:
    """The places that a word such as `0:5` names among `width` of something."""
    low, colon, high = word.partition(":")
    ends = low or "0", high or (str(width) if colon else "")
    found = range(int(ends[0]), int(ends[1])) if all(end.isdecimal() for end in ends) else range(0)
    if not found or found.stop > width:
        raise UserError(f"{flag} {word} names none of the {what}, which are 0:{width}")
    return found

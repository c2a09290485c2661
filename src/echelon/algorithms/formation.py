"""Distances that followers may be asked to keep, in the units people think in, as KL divergences.

Between Gaussians of one covariance at KL divergence d, ln r is N(-d, 2d) on the collector's rows; so ESS = exp(-2d).
"""

import math
from collections.abc import Callable

from echelon.config import FormationConfig


def asked_distances(config: FormationConfig, followers: int, clip: float) -> list[float]:
    """KL divergences of every follower, from those asked for in any unit; between two they are spread evenly in ln."""
    convert: dict[str, Callable[[float], float]] = {
        "kl": lambda d: d,
        "ess": lambda ess: -0.5 * math.log(ess),
        "clip_fraction": lambda share: distance_of_clip_fraction(share, clip),
    }
    found = [convert[config.unit](x) for x in config.distance]
    if len(found) == followers:
        return found
    if len(found) == 1:
        return found * followers
    near, far = (math.log(x) for x in found)
    return [math.exp(near + (far - near) * k / (followers - 1)) for k in range(followers)]


def distance_of_clip_fraction(share: float, clip: float) -> float:
    """The KL divergence at which this share of rows has a ratio outside 1 ± ε."""

    def outside(d: float) -> float:
        spread = 2.0 * math.sqrt(d)  # √2 times the deviation √(2d)
        above, below = (math.log1p(clip) + d) / spread, (math.log1p(-clip) + d) / spread
        return 0.5 * (math.erfc(above) + math.erfc(-below))

    low, high = 1e-9, 1e3
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if outside(middle) < share else (low, middle)
    return low

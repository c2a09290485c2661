"""Settings of domain randomisation: ranges from which every environment draws its own physics at each reset."""

from dataclasses import dataclass
from typing import Annotated

from echelon.config.ranges import NOT_NEGATIVE, POSITIVE
from echelon.errors import UserError

Interval = tuple[float, float]
"""Lowest and highest value; equal ones fix it."""


@dataclass(frozen=True)
class RandomiseConfig:
    """Domain randomisation: each takes a lowest and a highest value, between which environments draw at each reset."""

    mass: Annotated[Interval, POSITIVE.up_to(100)] = (1.0, 1.0)
    """Factor on mass and inertia, drawn for each body."""
    friction: Annotated[Interval, POSITIVE.up_to(100)] = (1.0, 1.0)
    """Factor on the friction of all contacts."""
    damping: Annotated[Interval, NOT_NEGATIVE.up_to(100)] = (1.0, 1.0)
    """Factor on damping, drawn for each degree of freedom."""
    armature: Annotated[Interval, NOT_NEGATIVE.up_to(100)] = (1.0, 1.0)
    """Factor on armature, drawn for each degree of freedom."""
    gain: Annotated[Interval, NOT_NEGATIVE.up_to(100)] = (1.0, 1.0)
    """Factor on force, drawn for each actuator: a motor's gain, a servo's stiffness and damping."""
    gravity: Annotated[Interval, NOT_NEGATIVE.up_to(100)] = (1.0, 1.0)
    """Factor on gravity."""
    action_delay: Annotated[Interval, NOT_NEGATIVE.up_to(1)] = (0.0, 0.0)
    """Seconds by which controls reach the actuators late."""
    action_noise: Annotated[Interval, NOT_NEGATIVE.up_to(10)] = (0.0, 0.0)
    """Deviation of the noise on controls, as a share of half an actuator's range, or of 1 if it has none."""
    observation_delay: Annotated[Interval, NOT_NEGATIVE.up_to(1)] = (0.0, 0.0)
    """Seconds by which the policy observes late."""
    observation_noise: Annotated[Interval, NOT_NEGATIVE.up_to(10)] = (0.0, 0.0)
    """Deviation of the noise on each number that the policy observes, in the observation's own units."""
    push: Annotated[Interval, NOT_NEGATIVE.up_to(100)] = (0.0, 0.0)
    """Speed in m/s that a push gives to the first body of each mechanism, sideways and at random times."""
    push_seconds: Annotated[float, POSITIVE] = 4.0
    """Mean time between two pushes."""

    def active(self) -> dict[str, Interval]:
        """Ranges that change something, by name."""
        ranges = {name: values for name, values in vars(self).items() if name != "push_seconds"}
        return {name: values for name, values in ranges.items() if values != getattr(PLAIN, name)}

    def check(self) -> None:
        """Raise a `UserError` for a range whose lowest value is above its highest."""
        for name, (low, high) in self.active().items():
            if low > high:
                flag = f"--randomise.{name.replace('_', '-')}"
                raise UserError(f"{flag} takes the lowest value first, so write {flag} {high:g} {low:g}")


PLAIN = RandomiseConfig()
"""Physics as the task's model has it."""
ROBUST = RandomiseConfig(
    mass=(0.7, 1.3),
    friction=(0.7, 1.3),
    damping=(0.7, 1.3),
    armature=(0.7, 1.3),
    gain=(0.7, 1.3),
    gravity=(0.95, 1.05),
    action_delay=(0.0, 0.02),
    action_noise=(0.0, 0.02),
    observation_delay=(0.0, 0.02),
    observation_noise=(0.0, 0.02),
    push=(0.0, 0.5),
)
"""Ranges of the variant `robust`."""
WIDE = RandomiseConfig(
    mass=(0.5, 1.5),
    friction=(0.5, 1.5),
    damping=(0.5, 1.5),
    armature=(0.5, 1.5),
    gain=(0.5, 1.5),
    gravity=(0.8, 1.2),
    action_delay=(0.0, 0.04),
    action_noise=(0.0, 0.1),
    observation_delay=(0.0, 0.04),
    observation_noise=(0.0, 0.1),
    push=(0.0, 1.0),
)
"""Ranges over which robustness is measured."""

"""A model of scale: an iteration's time on R GPUs from what it takes on one.

Every GPU has as many environments as the one that was measured, so an iteration collects R times the rows. They can be
learned from in two ways, or not together at all:

* **growing minibatch**: as many optimizer steps as on one GPU, each with R times the rows. Every GPU does what the one
  did, and the gradient is added up in every step. Little is lost, but learning does not get R times as far: the rate
  and the number of steps were found for a smaller minibatch.
* **fixed minibatch**: R times the optimizer steps, each with the rows it had. This is the recipe that was found, with
  more data. Each GPU has 1/R of a minibatch, and what a step takes however few rows it has is taken R times as often.
* **islands**: R runs that exchange parameters now and then, and never wait for each other.
"""

import math
from dataclasses import dataclass, replace

from echelon.planning.links import Links, all_reduce_seconds, exchange_seconds, sent_bytes

SUMS_PER_ITERATION = 5
"""Small sums beside the gradients: moments of advantages, of values and returns, of observations, of metrics."""
JITTER = 0.01
"""By how much iterations of alike GPUs differ."""
EXCHANGE_EVERY = 100
"""Iterations between two exchanges of an island."""
WORTH_IT = 0.8
"""Efficiency below which another GPU is better spent on another ensemble."""


@dataclass(frozen=True)
class Rates:
    """What one GPU does in an iteration."""

    env_steps: int
    collect_s: float
    """Everything but the update: rollout, targets, reading metrics."""
    update_s: float
    gradient_steps: int
    step_floor_s: float
    """What an optimizer step takes however few rows it has."""
    parameters: int
    source: str
    """Where this was measured, for a person to read."""

    @property
    def iteration_s(self) -> float:
        return self.collect_s + self.update_s

    @property
    def gradient_bytes(self) -> int:
        return 4 * self.parameters


@dataclass(frozen=True)
class Prediction:
    """What a way to use so many GPUs is worth."""

    recipe: str
    gpus: int
    iteration_s: float
    env_steps: int
    """Of all GPUs in an iteration."""
    gradient_steps: int
    """Of an iteration, of each network."""
    sent_bytes: float
    """That each GPU sends in an iteration."""
    efficiency: float
    """Environment steps per second, in parts of those of as many GPUs that never wait."""

    @property
    def steps_per_s(self) -> float:
        return self.env_steps / self.iteration_s

    def seconds(self, env_steps: float) -> float:
        """Until so many environment steps are made."""
        return env_steps / self.steps_per_s


def straggling(gpus: int, jitter: float) -> float:
    """How much longer the slowest of so many takes than a typical one: √(2 ln R) deviations."""
    return 1 + jitter * math.sqrt(2 * math.log(gpus))


def growing_minibatch(rates: Rates, gpus: int, links: Links, jitter: float = JITTER) -> Prediction:
    """As many steps as on one GPU, with R times the rows."""
    return _together("growing minibatch", rates, gpus, rates.gradient_steps, rates.update_s, links, jitter)


def fixed_minibatch(rates: Rates, gpus: int, links: Links, jitter: float = JITTER) -> Prediction:
    """R times the steps, with the rows they had."""
    steps = gpus * rates.gradient_steps
    update = rates.update_s + (steps - rates.gradient_steps) * rates.step_floor_s
    return _together("fixed minibatch", rates, gpus, steps, update, links, jitter)


def _together(
    recipe: str, rates: Rates, gpus: int, steps: int, update_s: float, links: Links, jitter: float
) -> Prediction:
    sums = steps * all_reduce_seconds(rates.gradient_bytes, gpus, links)
    sums += SUMS_PER_ITERATION * all_reduce_seconds(0, gpus, links)
    seconds = (rates.collect_s + update_s) * straggling(gpus, jitter) + sums
    return Prediction(
        recipe,
        gpus,
        seconds,
        gpus * rates.env_steps,
        steps,
        steps * sent_bytes(rates.gradient_bytes, gpus),
        rates.iteration_s / seconds,
    )


def islands(
    rates: Rates, gpus: int, links: Links, each: int = 1, every: int = EXCHANGE_EVERY, jitter: float = JITTER
) -> Prediction:
    """Runs on `each` of the GPUs, with a fixed minibatch, which every so many iterations put their parameters into a
    store and take another's."""
    one = fixed_minibatch(rates, each, links, jitter)
    seconds = one.iteration_s + exchange_seconds(rates.gradient_bytes, links) / every
    return replace(
        one,
        recipe="islands" if each == 1 else f"islands of {each}",
        gpus=gpus,
        iteration_s=seconds,
        env_steps=gpus * rates.env_steps,
        sent_bytes=one.sent_bytes + rates.gradient_bytes / every / each,
        efficiency=rates.iteration_s / seconds,
    )


def gpus_worth_it(rates: Rates, gpus: int, links: Links, jitter: float = JITTER) -> int:
    """How many of the GPUs one run should have: the most that divide them and keep a fixed minibatch worth it."""
    sizes = [size for size in range(1, gpus + 1) if gpus % size == 0]
    return max(size for size in sizes if fixed_minibatch(rates, size, links, jitter).efficiency >= WORTH_IT)

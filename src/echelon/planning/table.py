"""A plan for people."""

import math
from collections.abc import Sequence

from echelon.console.wording import count, duration
from echelon.planning.links import Links
from echelon.planning.model import (
    EXCHANGE_EVERY,
    JITTER,
    WORTH_IT,
    Prediction,
    Rates,
    fixed_minibatch,
    gpus_worth_it,
    growing_minibatch,
    islands,
)


def predictions(rates: Rates, gpus: int, links: Links, jitter: float = JITTER) -> list[Prediction]:
    """Every way to use the GPUs."""
    found = [
        growing_minibatch(rates, gpus, links, jitter),
        fixed_minibatch(rates, gpus, links, jitter),
        islands(rates, gpus, links, jitter=jitter),
    ]
    each = gpus_worth_it(rates, gpus, links, jitter)
    return found if each in (1, gpus) else [*found, islands(rates, gpus, links, each, jitter=jitter)]


def table(found: Sequence[Prediction], env_steps: float) -> str:
    """A line for each."""
    heading = ("time", "iteration", "steps/s", "efficiency", "optimizer steps", "sent a GPU", "GPU hours")
    lines = [f"{'':<20}" + "".join(f"{text:>{width}}" for text, width in zip(heading, WIDTHS, strict=True))]
    return "\n".join(lines + [_line(one, env_steps) for one in found])


WIDTHS = (14, 12, 11, 12, 17, 14, 12)


def _line(one: Prediction, env_steps: float) -> str:
    seconds = one.seconds(env_steps)
    cells = (
        duration(seconds),
        f"{1000 * one.iteration_s:,.1f} ms",
        count(one.steps_per_s),
        f"{one.efficiency:.2f}",
        f"{one.gradient_steps:,}",
        f"{one.sent_bytes / 1e6:,.2f} MB",
        f"{one.gpus * seconds / 3600:,.1f}",
    )
    return f"{one.recipe:<20}" + "".join(f"{text:>{width}}" for text, width in zip(cells, WIDTHS, strict=True))


def advice(rates: Rates, gpus: int, links: Links, jitter: float = JITTER) -> str:
    """What to do with the GPUs, and why."""
    if gpus == 1:
        return "One GPU: train as always."
    each = gpus_worth_it(rates, gpus, links, jitter)
    fixed = fixed_minibatch(rates, gpus, links, jitter).efficiency
    if each == gpus:
        return (
            f"Train one run on all {gpus} with a fixed minibatch: it keeps the recipe that was found, at {fixed:.0%} "
            f"of the rate of {gpus} GPUs that never wait."
        )
    growing = growing_minibatch(rates, gpus, links, jitter).efficiency
    what = f"{gpus // each} islands of {each} GPUs" if each > 1 else f"{gpus} islands, a GPU each"
    return (
        f"Train {what}. A fixed minibatch on all {gpus} would run at {math.floor(100 * fixed)}%, because what a step "
        f"takes however few rows it has is taken {gpus} times as often; the most that keep {WORTH_IT:.0%} is {each}. A "
        f"growing minibatch would run at {growing:.0%}, but each of its steps has {gpus} times the rows: the rate and "
        "the number of steps would have to be found anew."
    )


def assumptions(rates: Rates, gpus: int, links: Links) -> str:
    """What the figures rest on."""
    nodes = math.ceil(gpus / links.gpus_per_node)
    step = 1000 * rates.step_floor_s
    return (
        f"Rates: {rates.source}: {1000 * rates.collect_s:,.1f} ms an iteration without its update, "
        f"{1000 * rates.update_s:,.1f} ms the update, of {rates.gradient_steps} optimizer steps that take {step:.3f} "
        f"ms however few rows they have; {count(rates.parameters)} parameters.\n"
        f"Links: {nodes} node{'s' if nodes > 1 else ''} of up to {links.gpus_per_node} GPUs, {links.node_gb:g} GB/s "
        f"and {links.node_us:g} µs a hop inside, {links.network_gbit:g} Gb/s and {links.network_us:g} µs between; "
        f"islands exchange every {EXCHANGE_EVERY} iterations, at {links.store_mbit:g} Mb/s and {links.store_ms:g} ms."
    )

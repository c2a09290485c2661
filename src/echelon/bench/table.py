"""The results of a bench as a table and as JSON."""

import json
from typing import Any

from echelon.bench.measure import Bench
from echelon.config import to_dict
from echelon.console.wording import count, text_table


def table(found: Bench) -> str:
    """Lines of text: milliseconds, share of the iteration, and the rate of this part alone."""
    rows = [_row(name, value, found) for name, value in {**found.parts, "iteration": found.iteration}.items()]
    lines = [text_table(rows, ("", "ms", "share", "steps/s"), right=(1, 2, 3))]
    if found.physics_rate is not None:
        share = found.rate / found.physics_rate
        lines.append(f"training runs at {share:.0%} of the rate of physics alone")
    if found.memory is not None:
        lines.append(f"{found.memory / 2**30:.1f} GiB on the device")
    if found.synchronisations is not None:
        times = "once" if found.synchronisations == 1 else f"{found.synchronisations} times"
        lines.append(f"the host waits for the device {times} in an iteration")
    for rank, one in enumerate(found.ranks):
        room = "" if one.memory is None else f", {one.memory / 2**30:.1f} GiB"
        lines.append(f"rank {rank}: {one.iteration:.2f} ms, {count(one.rate)} steps/s{room}")
    return "\n".join(lines)


def _row(name: str, milliseconds: float, found: Bench) -> tuple[str, str, str, str]:
    depth, label = name.count("/"), name.rpartition("/")[2]
    rate = count(1000 * found.steps / milliseconds) if milliseconds else "-"
    return "  " * depth + label, f"{milliseconds:.2f}", f"{milliseconds / found.iteration:.1%}", rate


def document(found: Bench) -> str:
    """JSON of everything that was measured, with the settings."""
    figures: dict[str, Any] = {
        "task": found.config.task,
        "algo": found.config.algo,
        "num_envs": found.config.num_envs,
        "device": found.device,
        "iteration_ms": found.iteration,
        "parts_ms": found.parts,
        "steps_per_s": found.rate,
        "physics_steps_per_s": found.physics_rate,
        "memory_bytes": found.memory,
        "synchronisations": found.synchronisations,
        "ranks": [
            {"iteration_ms": one.iteration, "steps_per_s": one.rate, "memory_bytes": one.memory} for one in found.ranks
        ],
        "config": to_dict(found.config),
    }
    return json.dumps(figures, indent=2) + "\n"

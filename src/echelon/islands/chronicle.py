"""What a store tells about its islands: who is how good, and where each network comes from."""

from collections.abc import Sequence
from dataclasses import dataclass

from echelon.islands.records import Event, Record, read_events, read_records
from echelon.islands.store import Store


@dataclass(frozen=True)
class Chronicle:
    newest: dict[str, Record]
    """By island."""
    best: dict[str, Record]
    events: list[Event]
    left_alone: list[str]
    """Files that could not be used, and why."""

    @property
    def champion(self) -> Record | None:
        """The highest score that was ever published; scores of different tasks are not compared."""
        return max(self.best.values(), key=lambda record: record.score, default=None)

    def lineage(self, record: Record) -> list[Event] | None:
        """How its network came about, from the record's island back to where its line began; None if a part is
        missing."""
        known = {(event.island, event.number): event for event in self.events}
        found: list[Event] = []
        place: tuple[str, int] | None = (record.island, record.born)
        while place is not None:
            event = known.get(place)
            if event is None or event in found:  # a circle is somebody's invention
                return None
            found.append(event)
            place = None if event.donor is None else (event.donor, event.donor_born)
        return found


def read_chronicle(store: Store) -> Chronicle:
    left: list[str] = []

    def complain(file: str, why: str) -> None:
        left.append(f"{file!r}: {why}")

    newest, best = (read_records(store, which, complain) for which in ("newest", "best"))
    return Chronicle(newest, best, read_events(store, complain), left)


def written(chronicle: Chronicle) -> str:
    """For a person to read."""
    lines = ["island                 newest score    best score     env steps  members began and took over"]
    for name in sorted(set(chronicle.newest) | {event.island for event in chronicle.events}):
        newest, best = chronicle.newest.get(name), chronicle.best.get(name)
        events = [event for event in chronicle.events if event.island == name]
        numbers = [f"{record.score:>14.6g}" if record else f"{'-':>14}" for record in (newest, best)]
        steps = f"{newest.env_steps:>14,}" if newest else f"{'-':>14}"
        lines.append(f"{name:<20} {' '.join(numbers)} {steps}  {_counted(events)}")
    takeovers = sorted((event for event in chronicle.events if event.donor is not None), key=lambda e: e.env_steps)
    for event in takeovers:
        lines.append(
            f"{event.island} after {event.env_steps:,} steps, member {event.member} ({_figure(event.objective)}): "
            f"from {event.donor} at {event.donor_env_steps:,} steps ({_figure(event.donor_objective)})"
        )
    if champion := chronicle.champion:
        line = chronicle.lineage(champion)
        by = "a line with a gap" if line is None else " from ".join(event.island for event in line)
        lines.append(
            f"the best: {champion.score:.6g} of {champion.island}, networks/{champion.network}.safetensors, by {by}"
        )
    return "\n".join([*lines, *(f"left alone: {text}" for text in chronicle.left_alone)])


def _counted(events: Sequence[Event]) -> str:
    began = sum(event.donor is None for event in events)
    return f"{began} and {len(events) - began}"


def _figure(x: float | None) -> str:
    return "-" if x is None else f"{x:.4g}"

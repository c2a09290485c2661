"""Which event of its island each member's network goes back to, kept in the run folder for when the run is resumed."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path

from echelon.algorithms.algorithm import Takeover
from echelon.errors import UserError
from echelon.runs.durable import replace_durably

FILE = "island.json"


class Lines:
    """Members begin with the events 0, 1, ... of their island."""

    def __init__(self, folder: Path, members: int, iteration: int) -> None:
        self._path = folder / FILE
        self.owner = uuid.uuid4().hex
        """Tells this run from others that may have its island's name."""
        self._history: list[tuple[int, list[int]]] = [(0, list(range(members)))]
        if self._path.exists():
            try:
                stored = json.loads(self._path.read_text())
                self.owner = str(stored["owner"])
                history = [(int(at), [int(x) for x in born]) for at, born in stored["born"]]
            except (OSError, ValueError, KeyError, TypeError):
                raise UserError(f"{self._path} cannot be read; restore it, or start anew with another --out") from None
            # A run that goes on from a checkpoint has not yet seen what came after it.
            self._history = [(at, born) for at, born in history if at <= iteration] or self._history
        self._store()

    @property
    def born(self) -> list[int]:
        """The event of each member."""
        return self._history[-1][1]

    def begin(self) -> None:
        """The island is new in its store: its members' first events are its own."""
        self._history = [(at, list(range(len(born)))) for at, born in self._history[:1]]
        self._store()

    def follow(self, iteration: int, takeovers: Sequence[Takeover]) -> None:
        """Members that became copies of others within the island."""
        copied = [takeover for takeover in takeovers if takeover.copied]
        if copied:
            born = list(self.born)
            for takeover in copied:
                born[takeover.member] = self.born[takeover.donor]
            self._append(iteration, born)

    def take_over(self, iteration: int, member: int, event: int) -> None:
        """A network from another island, which is the member's from the next iteration on: it is not in a checkpoint of
        this one."""
        born = list(self.born)
        born[member] = event
        self._append(iteration + 1, born)

    def _append(self, iteration: int, born: list[int]) -> None:
        self._history.append((iteration, born))
        self._store()

    def _store(self) -> None:
        replace_durably(self._path, json.dumps({"owner": self.owner, "born": self._history}).encode())

"""One island: a run that publishes its best network, and takes over another's where that is clearly better.

Who is replaced by whom is decided by the rules of a population (`echelon.algorithms.evolution`), among this island's
own members and what all other islands have published. An ensemble is one member: its network with all its policies.
"""

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from echelon.algorithms.algorithm import Parts, Selection, Takeover
from echelon.algorithms.evolution import candidates, donors, mutate, ranked, worth_copying
from echelon.algorithms.pbt import Population
from echelon.config.checks import RANGES
from echelon.config.ranges import ANY
from echelon.errors import UserError, first_line
from echelon.islands.lines import Lines
from echelon.islands.records import (
    NAME,
    Event,
    Gone,
    Record,
    Unusable,
    network_file,
    pack,
    read_events,
    read_network,
    read_records,
    rows_of,
    write_event,
    write_record,
    write_rows,
)
from echelon.islands.store import open_store
from echelon.islands.work import Work
from echelon.runs.folder import RunFolder

PATIENCE = 30.0
"""Seconds after which a store counts as away. Training goes on in any case."""


@dataclass(frozen=True)
class _Offer:
    """What this island gives away."""

    record: Record
    data: bytes


class Island:
    """Told of every iteration. Everything that waits for the store is done in a thread."""

    def __init__(
        self,
        parts: Parts,
        selection: Selection | None,
        folder: RunFolder,
        iteration: int,
        say: Callable[[str], None],
    ) -> None:
        config = parts.config.islands
        assert config.place is not None
        self.parts, self.selection, self.say, self.every = parts, selection, say, config.every
        if selection is None and parts.layout.networks > 1:
            raise UserError(f"--islands.place is for one ensemble or one population, not for {parts.config.algo}")
        self.name = config.name or folder.name
        if not NAME.fullmatch(self.name):
            raise UserError(
                f"--islands.name takes letters, digits, dots, dashes and underscores, at most 64, not {self.name!r}"
            )
        self.store = open_store(config.place)
        self.lines = Lines(folder.path, parts.layout.networks, iteration)
        self.best: Record | None = None
        """The highest score this island has published."""
        self._members = parts.layout.networks
        self._looks = self._steps(iteration) // self.every
        self._number = 0
        """Of the next event."""
        self._unwritten: list[Event] = []
        self._published: set[str] = set()
        """Own networks in the store."""
        self._objectives = [math.nan] * self._members
        self._best_lately = [-math.inf] * self._members
        self._left_alone_since = [0] * self._members
        self._generator = torch.Generator().manual_seed(uuid.uuid4().int % 2**63)
        self._iteration = iteration
        self._joined = False
        self._wanted = ""
        """The network that is being read."""
        self._useless: set[str] = set()
        """Networks that could not be used."""
        self._complained: set[str] = set()
        self._away = False
        self._work = Work()
        self._join()

    def _steps(self, iteration: int) -> int:
        return iteration * self.parts.config.steps_per_iteration

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that a takeover copies, `[G, ...]` each, live."""
        model, optimizer = self.parts.update.model, self.parts.update.optimizer
        found = {f"model/{name}": x.data for name, x in (*model.named_parameters(), *model.named_buffers())}
        moments = {"mean": optimizer.mean, "square": optimizer.square, "steps": optimizer.steps}
        return found | {f"optimizer/{name}": x for name, x in moments.items()}

    # What happens in an iteration.

    def after(
        self, iteration: int, metrics: Mapping[str, float], takeovers: Sequence[Takeover] = (), *, last: bool = False
    ) -> None:
        """Take note of an iteration; publish, and look at others, if it is time to, and after the last."""
        self._iteration = iteration
        self.lines.follow(iteration, takeovers)
        self._objectives = self._objectives_of(metrics)
        known = zip(self._best_lately, self._objectives, strict=True)
        self._best_lately = [best if math.isnan(x) else max(best, x) for best, x in known]
        if last:
            self._finish()
            return
        self._settle()
        steps = self._steps(iteration)
        if self._work.idle and steps // self.every > self._looks:
            self._looks = steps // self.every
            self._look() if self._joined else self._join()

    def _finish(self) -> None:
        """Publish what there is at the end, and wait for it, but not for ever."""
        self._settle(PATIENCE)
        if self._joined and self._work.idle:
            self._look(consider=False)
            self._settle(PATIENCE)

    def _objectives_of(self, metrics: Mapping[str, float]) -> list[float]:
        if self.selection is None:
            return [metrics["return/leader"]]
        return [metrics[f"objective/policy_{i}"] for i in range(self._members)]

    def _settle(self, timeout: float = 0.0) -> None:
        """Take what the store has answered; say once if it does not."""
        answered = self._work.answered
        error = self._work.take(timeout)
        if isinstance(error, Unusable):
            self._useless.add(self._wanted)
            self._complain(network_file(self._wanted), str(error))
        elif isinstance(error, Gone):  # there will be another
            pass
        elif error is not None or self._work.seconds > PATIENCE:
            if not self._away:
                why = first_line(error) if error is not None else f"no answer for {PATIENCE:.0f} s"
                self.say(f"WARNING: the islands' store is away ({why}); training goes on without the others")
            self._away = True
        elif self._work.answered > answered and self._away:
            self._away = False
            self.say("the islands' store is back")

    def _complain(self, file: str, why: str) -> None:
        if file not in self._complained:
            self._complained.add(file)
            self.say(f"WARNING: {file!r} in the islands' store is left alone: {why}")

    # Joining.

    def _join(self) -> None:
        """Find out what this island has published before, and that nobody else has its name."""

        def run() -> tuple[list[Event], list[Record | None]]:
            events = [event for event in read_events(self.store, self._complain) if event.island == self.name]
            both = [read_records(self.store, which, self._complain).get(self.name) for which in ("best", "newest")]
            return events, both

        self._work.start(run, lambda found: self._enter(*found))
        self._settle(PATIENCE)

    def _enter(self, events: Sequence[Event], published: Sequence[Record | None]) -> None:
        records = [record for record in published if record is not None]
        owners = {one.owner for one in (*events, *records)}
        if owners - {self.lines.owner}:
            raise UserError(
                f"the islands' store has an island {self.name} already, of another run; choose another --islands.name"
            )
        self._joined, self.best = True, published[0]
        self._published = {record.network for record in records}
        self._number = max((event.number for event in events), default=-1) + 1
        if not events:
            for member in range(self._members):
                self._note(member, None, {}, {})
            self.lines.begin()
            self._write_events()

    def _write_events(self) -> None:
        """What fails is written with the next look."""
        unwritten = list(self._unwritten)

        def run() -> None:
            for event in unwritten:
                write_event(self.store, event)

        self._work.start(run, lambda _: self._unwritten.clear())

    def _note(self, member: int, donor: Record | None, before: dict[str, float], after: dict[str, float]) -> None:
        objective = self._objectives[member]
        self._unwritten.append(
            Event(
                island=self.name,
                owner=self.lines.owner,
                number=self._number,
                iteration=self._iteration,
                env_steps=self._steps(self._iteration),
                member=member,
                donor=donor.island if donor else None,
                donor_born=donor.born if donor else -1,
                donor_env_steps=donor.env_steps if donor else 0,
                objective=objective if math.isfinite(objective) else None,
                donor_objective=donor.score if donor else None,
                before=before,
                after=after,
            )
        )
        self._number += 1

    # Publishing, and looking at others.

    def _look(self, consider: bool = True) -> None:
        offer, unwritten = self._offer(), list(self._unwritten)

        def run() -> list[Record]:
            for event in unwritten:  # first, so that every network's line is known
                write_event(self.store, event)
            if offer is not None:
                self._publish(offer)
            found: dict[str, Record] = {}
            for which in ("newest", "best"):
                for record in read_records(self.store, which, self._complain).values():
                    found.setdefault(record.network, record)
            return [record for record in found.values() if record.island != self.name]

        def then(found: list[Record]) -> None:
            self._unwritten.clear()
            if consider:
                self._consider(found)

        self._work.start(run, then)

    def _offer(self) -> _Offer | None:
        """The best member, if its score is known."""
        member = ranked(self._objectives)[0]
        score = self._objectives[member]
        if not math.isfinite(score):
            return None
        sha, data = pack(rows_of(self.tensors, member))
        record = Record(
            island=self.name,
            owner=self.lines.owner,
            task=self.parts.config.task,
            objective=self._measure,
            score=score,
            iteration=self._iteration,
            env_steps=self._steps(self._iteration),
            member=member,
            hyperparameters=self._hyperparameters(member),
            born=self.lines.born[member],
            network=sha,
            size=len(data),
        )
        return _Offer(record, data)

    @property
    def _measure(self) -> str:
        return self.selection.objective if isinstance(self.selection, Population) else "return"

    def _publish(self, offer: _Offer) -> None:
        """The network, then what names it; then away with networks that nothing names any more."""
        record = offer.record
        self.store.write(network_file(record.network), offer.data)
        self._published.add(record.network)
        write_record(self.store, record, "newest")
        if self.best is None or record.score > self.best.score:
            write_record(self.store, record, "best")
            self.best = record
        for network in self._published - {record.network, self.best.network}:
            self.store.remove(network_file(network))
            self._published.discard(network)

    def _consider(self, found: Sequence[Record]) -> None:
        """Decide by the population's rules whether a member goes on as a copy of what another island published."""
        foreign = [record for record in found if record.network not in self._useless and self._comparable(record)]
        objectives = [*self._objectives, *(record.score for record in foreign)]
        best_lately = [*self._best_lately, *(math.inf for _ in foreign)]
        self._best_lately = [-math.inf] * self._members
        pbt, steps = self.parts.config.pbt, self._steps(self._iteration)
        chosen = [i for i in candidates(objectives, best_lately, pbt) if i < self._members]
        for member in sorted(chosen, key=objectives.__getitem__):
            best = donors(objectives, pbt)
            donor = best[int(self._draw() * len(best))]
            rested = steps - self._left_alone_since[member] >= self.every
            if donor < self._members or not rested:  # its own members are its own selection's business
                continue
            if worth_copying(objectives[member], objectives[donor], objectives, pbt):
                self._fetch(member, foreign[donor - self._members])
                return

    def _comparable(self, record: Record) -> bool:
        for what, ours, theirs in (
            ("task", self.parts.config.task, record.task),
            ("score", self._measure, record.objective),
        ):
            if ours != theirs:
                self._complain(f"records/{record.island}", f"its {what} is {theirs!r}, and here it is {ours!r}")
                return False
        return True

    def _draw(self) -> float:
        return torch.rand((), generator=self._generator, dtype=torch.float64).item()

    def _fetch(self, member: int, record: Record) -> None:
        self._wanted = record.network
        like = {name: x.detach().cpu() for name, x in rows_of(self.tensors, member).items()}
        self._work.start(
            lambda: read_network(self.store, record, like), lambda tensors: self._take_over(member, record, tensors)
        )

    def _take_over(self, member: int, record: Record, tensors: Mapping[str, Tensor]) -> None:
        """Go on as a copy, with hyperparameters of one of both that mutate; all in place."""
        parts, layout = self.parts, self.parts.layout
        before = self._hyperparameters(member)
        theirs = {name: record.hyperparameters.get(name, value) for name, value in before.items()}
        usable = all(value in RANGES.get(f"update.{name}", ANY) for name, value in theirs.items())
        source = theirs if usable and self._draw() < 0.5 else before
        after = mutate(source, self._draw, parts.config.pbt)
        write_rows(self.tensors, member, tensors)
        if isinstance(self.selection, Population):
            self.selection.write([after if i == member else {} for i in range(self._members)])
            own_steps = self._iteration * parts.config.update.horizon * layout.envs
            self.selection.evolution.left_alone_since[member] = own_steps
        elif "learning_rate" in after:
            parts.update.optimizer.rate[member].fill_(after["learning_rate"])
        parts.collector.hand_over(layout.policy_id // layout.each == member)
        self._left_alone_since[member] = self._steps(self._iteration)
        self.say(
            f"island {self.name}: member {member} ({self._objectives[member]:.4g}) goes on as a copy of island "
            f"{record.island}'s ({record.score:.4g})"
        )
        self._note(member, record, before, after)
        self.lines.take_over(self._iteration, member, self._number - 1)
        self._write_events()

    def _hyperparameters(self, member: int) -> dict[str, float]:
        if self.selection is not None:
            return self.selection.start()[member]
        return {"learning_rate": self.parts.update.optimizer.rate[member].item()}

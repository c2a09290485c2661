"""What islands publish, and how it is read by those who trust nobody.

    records/NAME.newest.json   what NAME would give away now: score, steps, hyperparameters, and which network
    records/NAME.best.json     the same of the highest score it ever had
    networks/SHA256.safetensors   weights, statistics and moments of one network, named after their content
    genealogy/NAME-000003.json    the fourth thing that happened to NAME: it began, or took over a network

Only NAME writes its files. A network is written before the record that names it. Records and events have a checksum.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from echelon.envs.checks import MAX_STATISTIC
from echelon.islands.store import Store, TooLarge

FORMAT = 1
LIMIT = 1 << 16
"""Bytes of a record."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHA = re.compile(r"[0-9a-f]{64}")
UNREADABLE = (PermissionError, IsADirectoryError)
"""A file is at fault, as of another user's with other rights, and not the store."""
T = TypeVar("T", "Record", "Event")


class Unusable(Exception):
    """A file that is left alone; the message says what is wrong with it."""


class Gone(Exception):
    """A network that its island has replaced meanwhile."""


@dataclass(frozen=True)
class Record:
    """A network that an island gives away."""

    island: str
    owner: str
    """The run, by a number of its own: two of one name would overwrite each other."""
    task: str
    objective: str
    """What the score is of: `return`, or the task's own."""
    score: float
    iteration: int
    env_steps: int
    member: int
    hyperparameters: dict[str, float]
    born: int
    """The event of this island that the network's line goes back to."""
    network: str
    """Its checksum, which is its name."""
    size: int
    """Bytes of it."""


@dataclass(frozen=True)
class Event:
    """Something that happened to an island: number 0 is that it began."""

    island: str
    owner: str
    number: int
    iteration: int
    env_steps: int
    member: int
    donor: str | None
    """The island whose network was taken over."""
    donor_born: int
    """The donor's event that the network's line goes back to."""
    donor_env_steps: int
    objective: float | None
    donor_objective: float | None
    before: dict[str, float]
    after: dict[str, float]


def write_record(store: Store, record: Record, which: str) -> None:
    store.write(f"records/{record.island}.{which}.json", _sealed(record))


def write_event(store: Store, event: Event) -> None:
    store.write(f"genealogy/{event.island}-{event.number:06d}.json", _sealed(event))


def read_records(store: Store, which: str, complain: Callable[[str, str], None]) -> dict[str, Record]:
    """By island. `complain(file, why)` is called for those that are left alone."""
    return {record.island: record for record in _read_all(store, "records", rf"(.+)\.{which}\.json", Record, complain)}


def read_events(store: Store, complain: Callable[[str, str], None]) -> list[Event]:
    """The whole genealogy, island by island, in order."""
    found = _read_all(store, "genealogy", r"(.+)-\d{6,}\.json", Event, complain)
    return sorted(found, key=lambda event: (event.island, event.number))


def pack(tensors: Mapping[str, Tensor]) -> tuple[str, bytes]:
    """A network as a file, and its name."""
    from safetensors.torch import save

    data = save({name: x.detach().cpu().contiguous() for name, x in tensors.items()})
    return hashlib.sha256(data).hexdigest(), data


def network_file(sha: str) -> str:
    return f"networks/{sha}.safetensors"


def read_network(store: Store, record: Record, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The network of a record, if it is whole, fits `like`, and can be gone on with."""
    from safetensors.torch import load

    limit = 2 * sum(x.numel() * x.element_size() for x in like.values()) + LIMIT
    try:
        data = store.read(network_file(record.network), limit)
    except TooLarge:
        raise Unusable("it is larger than this island's networks") from None
    except FileNotFoundError:
        raise Gone from None
    except UNREADABLE as error:
        raise Unusable(f"it cannot be read: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != record.network:
        raise Unusable("it does not match its checksum")
    try:
        tensors = load(data)
    except Exception as error:  # whatever a stranger's file makes of it
        raise Unusable(f"it is no safetensors file: {type(error).__name__}") from None
    for name, x in like.items():
        if name not in tensors or tensors[name].shape != x.shape or tensors[name].dtype != x.dtype:
            raise Unusable("it is of another network or task")
        if not bool((tensors[name].abs() <= MAX_STATISTIC).all()):
            raise Unusable("its numbers are not finite, or beyond all measure")
    return {name: tensors[name] for name in like}


def _sealed(value: Any) -> bytes:
    body = {"format": FORMAT} | asdict(value)
    return json.dumps({"sha256": _digest(body), "body": body}).encode()


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _read_all(store: Store, folder: str, pattern: str, kind: type[T], complain: Callable[[str, str], None]) -> list[T]:
    found: list[T] = []
    for name in store.names(folder):
        match = re.fullmatch(pattern, name.partition("/")[2])
        if not match:
            continue
        try:
            value = _opened(store.read(name, LIMIT), kind)
            if value.island != match[1]:
                raise Unusable("it is of another island than its name says")
        except FileNotFoundError:  # removed meanwhile
            continue
        except UNREADABLE as error:
            complain(name, f"it cannot be read: {error.strerror}")
        except TooLarge:
            complain(name, "it is too large")
        except Unusable as error:
            complain(name, str(error))
        else:
            found.append(value)
    return found


def _opened(data: bytes, kind: type[T]) -> T:
    """A record or an event, if it is whole and has the right kinds of values."""
    try:
        document = json.loads(data)
        body = document["body"]
        if document["sha256"] != _digest(body):
            raise Unusable("it does not match its checksum")
        if body.pop("format") != FORMAT:
            raise Unusable("another version of Echelon wrote it")
        value = kind(**body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unusable("it is not whole") from None
    checks: dict[str, Callable[[Any], bool]] = {
        "str": lambda x: isinstance(x, str) and len(x) < 200,
        "str | None": lambda x: x is None or bool(isinstance(x, str) and NAME.fullmatch(x)),
        "int": lambda x: type(x) is int and -1 <= x < 2**62,
        "float": _is_number,
        "float | None": lambda x: x is None or _is_number(x),
        "dict[str, float]": lambda x: isinstance(x, dict) and all(map(_is_number, x.values())),
    }
    for field in fields(kind):
        if not checks[_kind(field.type)](getattr(value, field.name)):
            raise Unusable(f"its {field.name} makes no sense")
    if not NAME.fullmatch(value.island) or (isinstance(value, Record) and not _SHA.fullmatch(value.network)):
        raise Unusable("its names make no sense")
    return value


def _kind(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) and annotation in (str, int, float) else str(annotation)


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def rows_of(parts: Mapping[str, Tensor], network: int) -> dict[str, Tensor]:
    """One network's part `[1, ...]` of stacked tensors."""
    return {name: x[network : network + 1] for name, x in parts.items()}


@torch.no_grad()
def write_rows(parts: Mapping[str, Tensor], network: int, values: Mapping[str, Tensor]) -> None:
    """A network becomes another, in place."""
    for name, x in parts.items():
        x[network : network + 1].copy_(values[name])

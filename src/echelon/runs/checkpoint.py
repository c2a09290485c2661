"""Checkpoints: complete or absent, checksummed, without pickle.

    checkpoints/00000120/
        tensors.safetensors   every tensor of the state, named after its path in it (`model/trunk.0.weight`)
        rank-0001.safetensors, and so on: those of each further rank's own state
        state.json            {"sha256": of "body", "body": {format, iteration, score, ranks: [{state, tensors: {sha256,
                              bytes}}, ...]}}

All files are written and synced inside `.saving-*`, which is then renamed: a kill leaves a complete checkpoint or a
hidden folder that the next save removes. Saving an iteration again first renames the old one to `00000120.replaced`,
which is used until the new one is there. The newest K are kept, and the one with the highest score.

JSON has no tensors, tuples, integer keys or infinities. Each becomes an object with one key that starts with `$`:
`{"$tensor": "model/phi"}`, `{"$tuple": [...]}`, `{"$map": [[key, value], ...]}`, `{"$float": "nan"}`. A mapping whose
own keys start with `$` is written as `$map` too.
"""

import hashlib
import json
import math
import os
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load as from_safetensors, save as to_safetensors
from torch import Tensor

from echelon.algorithms import find as find_algorithm
from echelon.config import TrainConfig
from echelon.envs.contract import MAX_STATISTIC
from echelon.errors import UserError
from echelon.ranks import ALONE, Ranks
from echelon.runs.durable import sync_directory, write_durably, writing
from echelon.runs.folder import CONFIG, RunFolder
from echelon.runs.untrusted import Unreadable, read_bytes, read_json, size_of

Which = Literal["newest", "best"] | int
"""Which checkpoint: a number is the iteration it was saved after."""
FORMAT = 3
TENSORS, STATE = "tensors.safetensors", "state.json"
MAX_WARNINGS = 10
"""Damaged checkpoints that are named."""
RETRIES = 50
"""Retries of a reader whose checkpoint vanished meanwhile."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose `state.json` is valid; tensors are read when they are asked for, on the CPU."""

    path: Path
    iteration: int
    score: float | None
    parts: list[dict[str, Any]]
    """What `state.json` says of each rank that saved it: `state`, and size and checksum of its `tensors`."""

    @property
    def ranks(self) -> int:
        """Number of ranks that saved it."""
        return len(self.parts)

    @cached_property
    def state(self) -> dict[str, Any]:
        """State of rank 0. Raises `Unreadable` if the file of any rank is damaged."""
        for rank in range(1, self.ranks):
            self._tensors(rank)
        try:
            state = self._decoded(0)
            spoiled = unsound(state)
        except Unreadable:
            raise
        except Exception as error:  # the file is untrusted: any error may follow, MemoryError included
            raise Unreadable(f"its content makes no sense: {type(error).__name__}") from None
        if spoiled:
            raise Unreadable(f"{spoiled} is not finite")
        return state

    def of_rank(self, rank: int) -> dict[str, Any]:
        """The own state of a rank: environments and random numbers."""
        return self.state["trainer"] if rank == 0 else self._decoded(rank)

    def _decoded(self, rank: int) -> dict[str, Any]:
        return decode(self.parts[rank]["state"], from_safetensors(self._tensors(rank)))

    def _tensors(self, rank: int) -> bytes:
        """A rank's file of tensors, if it is what was described when it was written."""
        described, name = self.parts[rank]["tensors"], _file(rank)
        data = read_bytes(self.path / name, most=described["bytes"])
        if hashlib.sha256(data).hexdigest() != described["sha256"]:
            raise Unreadable(f"{name} does not match its checksum")
        return data


def save(
    folder: RunFolder,
    iteration: int,
    state: Mapping[str, object],
    score: float | None = None,
    ranks: Ranks = ALONE,
    own: Mapping[str, object] | None = None,
) -> Path:
    """Save `state` after `iteration` iterations. The highest score so far is never pruned; NaN counts as none. A
    collective call: rank 0 saves `state`, the others their `own`; the checkpoint appears when all are done."""
    root, name = folder.checkpoints, f"{iteration:08d}"
    final, saving = root / name, root / f".saving-{name}"

    @contextmanager
    def cleaning_up() -> Iterator[None]:
        try:
            with writing(final):
                yield
        except UserError:
            if ranks.first:
                shutil.rmtree(saving, ignore_errors=True)
            raise

    @cleaning_up()
    def begin() -> None:
        if ranks.first:
            root.mkdir(exist_ok=True)  # never the run folder: one that was moved or deleted is not created again
            tidy(root)
            saving.mkdir()

    @cleaning_up()
    def write() -> dict[str, Any]:
        tensors: dict[str, Tensor] = {}
        encoded = encode(state if ranks.first else own or {}, tensors)
        data = to_safetensors(tensors)
        write_durably(saving / _file(ranks.rank), data)
        return {"state": encoded, "tensors": {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}}

    @cleaning_up()
    def finish(parts: list[dict[str, Any]]) -> None:
        if not ranks.first:
            return
        finite = None if score is None or not math.isfinite(score) else float(score)
        body = {"format": FORMAT, "iteration": iteration, "score": finite, "ranks": parts}
        write_durably(saving / STATE, json.dumps({"sha256": _digest(body), "body": body}).encode())
        sync_directory(saving)
        if final.exists():
            _remove(root / f"{name}.replaced")
            os.rename(final, root / f"{name}.replaced")
        os.rename(saving, final)
        sync_directory(root)
        _prune(root, folder.config.keep_checkpoints)

    ranks.attempt(begin)
    parts = ranks.gather(ranks.attempt(write))
    ranks.attempt(lambda: finish(parts))
    return final


def find(
    folder: RunFolder, which: Which = "newest", warn: Callable[[str], object] = warnings.warn
) -> Checkpoint | None:
    """Find the newest valid checkpoint, the one with the highest score, or that of an iteration; None if there is none.
    `warn` is called for each damaged one that was skipped. Looks again if a trainer replaced or removed one."""
    found, skipped = None, dict[Path, Unreadable]()
    for attempt in range(RETRIES):
        skipped, paths = {}, _candidates(folder.checkpoints)
        wanted = [path for path in paths if not isinstance(which, int) or _iteration(path) == which]
        if which == "best":
            wanted = [one.path for one in sorted(_valid(wanted, skipped), key=_order, reverse=True)]
        found = next(_valid(wanted, skipped, whole=True), None)
        if not skipped or (attempt and _candidates(folder.checkpoints) == paths):
            break
        time.sleep(0.001)
    for path, damage in list(skipped.items())[:MAX_WARNINGS]:
        warn(f"checkpoint {path} is damaged ({damage}) and was skipped")
    return found


def load(folder: RunFolder, which: Which) -> Checkpoint:
    """What `find` finds, with trained policies in it; a `UserError` if there is none."""
    found = find(folder, which)
    if found is None and (saved := saved_iterations(folder)):
        if isinstance(which, int) and which not in saved:
            closest = min(saved, key=lambda iteration: abs(iteration - which))
            raise UserError(f"{folder.path} has no checkpoint of iteration {which}; the nearest is {closest}")
        raise UserError(f"every checkpoint of {folder.path} is damaged; restore one or train the run again")
    if found is None:
        raise UserError(f"{folder.path} has no checkpoint yet; train it first")
    trainer = found.state.get("trainer")
    parts = trainer if isinstance(trainer, dict) else {}
    if not all(isinstance(parts.get(name), dict) for name in ("model", "env", "interface")):
        raise UserError(f"checkpoint {found.path} holds no trained policies; remove it, or train the run again")
    if type(leader := parts.get("leader")) is not int or not 0 <= leader < folder.config.num_policies:
        raise UserError(f"checkpoint {found.path} is of another run, with other policies; remove it")
    return found


@contextmanager
def fitting(found: Checkpoint) -> Iterator[None]:
    """Turn whatever an untrusted checkpoint does to networks of other sizes into a `UserError`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError):
            raise
        told = f"the network of this run is not the one that its checkpoint {found.path} holds"
        raise UserError(f"{told}; restore its {CONFIG}") from None


def require_fit(found: Checkpoint, config: TrainConfig) -> None:
    """Raise a `UserError` if a checkpoint holds other networks, or more environments, than the settings ask for: both
    are untrusted, so this is known before memory is taken for either."""
    trainer = found.state["trainer"]
    with fitting(found):
        interface, environments = trainer["interface"], len(trainer["policy_id"]) * found.ranks
        sizes = interface["obs_spec"], interface["action_dim"]
        if any(torch.as_tensor(x).shape != (sizes[1],) for x in (interface.get("bounds") or {}).values()):
            raise ValueError
        if config.model.encoder is None:  # code of the user's own
            with torch.device("meta"):
                claimed = find_algorithm(config.algo).make_networks(*sizes, config).state_dict()
            ours, theirs = ({name: x.shape for name, x in one.items()} for one in (claimed, trainer["model"]))
            if ours != theirs:
                raise ValueError
    if environments != config.num_envs:
        told = f"checkpoint {found.path} has {environments:,} environments, not the {config.num_envs:,} of its run"
        raise UserError(f"{told}; restore its {CONFIG}")


def saved_iterations(folder: RunFolder) -> list[int]:
    """Iterations that checkpoints were saved after, valid or damaged, ascending."""
    return sorted({_iteration(path) for path in _candidates(folder.checkpoints)})


def is_newest(folder: RunFolder, which: Which, iteration: int) -> bool:
    """Whether what was loaded as `which`, the checkpoint of `iteration`, is the newest: reports show that one only."""
    return which == "newest" or iteration == max(saved_iterations(folder), default=iteration)


def remove_after(folder: RunFolder, iteration: int) -> None:
    """Remove the checkpoints of later iterations, of a run that continues from this one, or from scratch at 0."""
    for path in _candidates(folder.checkpoints):
        if _iteration(path) > iteration:
            with writing(path):
                _remove(path)


def tidy(root: Path) -> None:
    """Clean up after a killed save: delete hidden folders, and restore a `.replaced` one that has no successor."""
    for path in [*root.glob(".saving-*"), *root.glob(".removing-*")]:
        shutil.rmtree(path, ignore_errors=True)
    for path in root.glob("*.replaced"):
        if not path.with_suffix("").exists():
            os.rename(path, path.with_suffix(""))


def unsound(state: Mapping[str, Any]) -> str | None:
    """Name a tensor that is not finite, or absurdly large, if that leaves no sound network. A population replaces its
    broken members, so one sound network is enough; other runs have only one."""
    trainer = state.get("trainer", {})
    for part in (("model", "optimizer"), ("extra_reward",)):
        sound = None
        for name, x in (found for key in part for found in tensors_of(trainer.get(key, {}), key)):
            if x.is_floating_point() and x.dim() and x.numel():
                fine = (x.abs() <= MAX_STATISTIC).reshape(len(x), -1).all(1)
                sound = fine if sound is None else sound & fine
                if not sound.any():
                    return name
    return None


def _file(rank: int) -> str:
    return f"rank-{rank:04d}.safetensors" if rank else TENSORS


def _opened(path: Path) -> Checkpoint:
    """Read and verify everything but the tensors, of whose files only the lengths are checked."""
    document = read_json(path / STATE)
    try:
        body = document["body"]
        found = Checkpoint(path, body["iteration"], body["score"], body["ranks"])
        sizes = [part["tensors"]["bytes"] for part in found.parts]
        kinds = [type(number) is int for number in (found.iteration, body["format"], *sizes)]
        kinds += [type(part["state"]) is dict for part in found.parts]
        if not sizes or not all(kinds) or not (found.score is None or math.isfinite(found.score)):
            raise TypeError
        intact = document["sha256"] == _digest(body)
    except (AttributeError, KeyError, TypeError, OverflowError):
        raise Unreadable(f"{STATE} is not whole") from None
    if not intact:
        raise Unreadable(f"{STATE} does not match its checksum")
    if found.iteration != _iteration(path):
        raise Unreadable(f"it says that it is of iteration {found.iteration}")
    if body["format"] != FORMAT:
        raise Unreadable(f"it has format {body['format']}, this version reads {FORMAT}")
    for rank, wanted in enumerate(sizes):
        if (size := size_of(path / _file(rank))) != wanted:
            raise Unreadable(f"{_file(rank)} has {size} of {wanted} bytes")
    return found


def _valid(paths: Iterable[Path], skipped: dict[Path, Unreadable], whole: bool = False) -> Iterator[Checkpoint]:
    """Those whose `state.json` is valid, with `whole` the tensors too; why others are not goes into `skipped`."""
    for path in paths:
        try:
            found = _opened(path)
            if not whole or found.state is not None:
                yield found
        except Unreadable as damage:
            skipped[path] = damage


def _order(found: Checkpoint) -> tuple[float, int]:
    """Sort key: by score, then by iteration; those without a score come first."""
    return (-math.inf if found.score is None else found.score, found.iteration)


def _digest(body: Any) -> str:
    """Checksum over a canonical text, so that the file itself can be formatted as plain JSON."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _candidates(root: Path) -> list[Path]:
    """Folders named like checkpoints, newest first; a replaced one comes right after its successor."""
    paths = root.iterdir() if root.is_dir() else ()
    found = (path for path in paths if re.fullmatch(r"\d{8,}(\.replaced)?", path.name))
    return sorted(found, key=lambda path: (-_iteration(path), path.name))


def _prune(root: Path, keep: int) -> None:
    """Remove all but the newest `keep` and the best. Damaged ones do not count towards `keep`."""
    whole: dict[int, Checkpoint] = {}
    for one in _valid(_candidates(root), {}):
        whole.setdefault(one.iteration, one)  # The successor is listed before what it replaced.
    if not whole:  # a read error: the one that was just saved is whole
        return
    newest = list(whole.values())[:keep]
    kept = {one.path for one in [*newest, max(whole.values(), key=_order)]}
    for path in _candidates(root):
        # A damaged one stays until `keep` newer ones are there: a passing read error must not cost a checkpoint.
        if path not in kept and (_iteration(path) in whole or _iteration(path) < newest[-1].iteration):
            _remove(path)


def _iteration(path: Path) -> int:
    """The iteration in a checkpoint's name."""
    return int(path.name.removesuffix(".replaced"))


def _remove(path: Path) -> None:
    """Rename to a hidden name, then delete: a kill in between leaves no partial checkpoint."""
    if path.exists():
        hidden = path.with_name(f".removing-{path.name}")
        os.rename(path, hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def encode(value: object, tensors: dict[str, Tensor], where: str = "") -> Any:
    """`value` as JSON data. Tensors are copied to the CPU and put into `tensors`, named after their path."""
    match value:
        case Tensor():
            # safetensors wants dense tensors that share no memory.
            tensors[where] = value.detach().to("cpu", copy=True).contiguous()
            return {"$tensor": where}
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"$float": str(value)}
        case list() | tuple():
            items = [encode(item, tensors, _join(where, index)) for index, item in enumerate(value)]
            return items if isinstance(value, list) else {"$tuple": items}
        case Mapping():
            items = {key: encode(item, tensors, _join(where, key)) for key, item in value.items()}
            if all(isinstance(key, str) and not key.startswith("$") for key in items):
                return items
            return {"$map": [[encode(key, tensors, where), item] for key, item in items.items()]}
    kinds = "tensors, numbers, strings, None, lists, tuples and mappings"
    raise TypeError(f"a checkpoint holds {kinds}; {where or 'the state'} is {type(value).__name__}")


def decode(data: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `encode`."""
    match data:
        case list():
            return [decode(item, tensors) for item in data]
        case {"$tensor": name}:
            return tensors[name]
        case {"$tuple": items}:
            return tuple(decode(item, tensors) for item in items)
        case {"$map": pairs}:
            return {decode(key, tensors): decode(item, tensors) for key, item in pairs}
        case {"$float": text}:
            return float(text)
        case dict():
            return {key: decode(item, tensors) for key, item in data.items()}
    return data


def tensors_of(value: object, where: str = "") -> Iterator[tuple[str, Tensor]]:
    """All tensors in nested state, by their paths."""
    if isinstance(value, Tensor):
        yield where, value
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in items:
        yield from tensors_of(item, _join(where, key))


def _join(where: str, key: object) -> str:
    """The path of an item in the state, joined by `/`; a `/` inside a key is doubled so that no two paths collide."""
    part = str(key).replace("/", "//")
    return f"{where}/{part}" if where else part

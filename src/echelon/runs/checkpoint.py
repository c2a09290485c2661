"""Checkpoints: complete or absent, checksummed, without pickle.

    checkpoints/00000120/
        tensors.safetensors   every tensor of the state, named after its path in it (`model/trunk.0.weight`)
        state.json            {"sha256": of "body", "body": {format, iteration, score, state, tensors: {sha256, bytes}}}
        rank-0001.safetensors, and so on: what each further rank of a run has for itself; the body describes them under
                              "ranks", as [{state, tensors: {sha256, bytes}}, ...]

All files are written and synced inside `.saving-*`, which is then renamed: a kill leaves a complete checkpoint or a
hidden folder that the next save removes. Saving an iteration again first renames the old one to `00000120.replaced`,
which is used until the new one is there. The newest K are kept, and the one with the highest score.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from echelon.errors import UserError
from echelon.ranks import ALONE, Ranks
from echelon.runs.durable import sync_directory, write_durably
from echelon.runs.encoding import decode, encode
from echelon.runs.folder import RunFolder
from echelon.runs.soundness import unsound

Which = Literal["newest", "best"] | int
"""Which checkpoint: a number is the iteration it was saved after."""
FORMAT = 2
TENSORS = "tensors.safetensors"
STATE = "state.json"
RETRIES = 50
"""How often a reader looks again for a checkpoint that vanished under it."""
T = TypeVar("T")
_NAME = re.compile(r"\d{8,}(\.replaced)?")


@dataclass(frozen=True)
class Checkpoint:
    """A state as it was saved, its tensors on the CPU."""

    path: Path
    iteration: int
    """Iterations done when it was saved."""
    score: float | None
    state: dict[str, Any]
    """State of rank 0."""
    others: tuple[dict[str, Any], ...] = ()
    """Descriptions of the other ranks' own state, which `of_rank` reads."""

    @property
    def ranks(self) -> int:
        """Number of ranks that saved it."""
        return 1 + len(self.others)

    def of_rank(self, rank: int) -> dict[str, Any]:
        """The own state of a rank: environments and random numbers."""
        if rank == 0:
            return self.state["trainer"]
        described = self.others[rank - 1]
        try:
            return _decoded(described["state"], _tensors(self.path, _rank_file(rank), described["tensors"]))
        except Damaged as damage:
            raise UserError(
                f"checkpoint {self.path} is damaged ({damage}); remove it, and the run resumes before"
            ) from None


@dataclass(frozen=True)
class _Entry:
    """A checkpoint whose `state.json` is valid; its tensors are not read yet."""

    path: Path
    body: dict[str, Any]

    @property
    def iteration(self) -> int:
        return self.body["iteration"]

    @property
    def score(self) -> float | None:
        return self.body["score"]

    @property
    def others(self) -> list[dict[str, Any]]:
        """Ranks but the first."""
        return self.body.get("ranks", [])

    @property
    def rank(self) -> tuple[float, int]:
        """Sort key: by score, then by iteration; those without a score come last."""
        return (-math.inf if self.score is None else self.score, self.iteration)


class Damaged(Exception):
    """A checkpoint that cannot be used; the message says what is wrong with it."""


def warn_damaged(text: str) -> None:
    """Report a damaged checkpoint as a Python warning."""
    warnings.warn(text, UserWarning, stacklevel=3)


def save(
    folder: RunFolder,
    iteration: int,
    state: Mapping[str, object],
    score: float | None = None,
    ranks: Ranks = ALONE,
    own: Mapping[str, object] | None = None,
) -> Path:
    """Save `state` after `iteration` iterations. The highest score so far is never pruned; NaN counts as none.

    A collective call: rank 0 saves `state`, the others their `own`; the checkpoint appears when all are done.
    """
    root, name = folder.checkpoints, f"{iteration:08d}"
    final, saving = root / name, root / f".saving-{name}"

    def begin() -> None:
        if ranks.first:
            root.mkdir(exist_ok=True)  # never the run folder: one that was moved or deleted is not made anew
            _tidy(root)
            saving.mkdir()

    def write_own() -> dict[str, Any] | None:
        return None if ranks.first else _write_tensors(saving / _rank_file(ranks.rank), own or {})

    def finish(others: Sequence[dict[str, Any] | None]) -> None:
        if not ranks.first:
            return
        _write(saving, iteration, state, score, others)
        if final.exists():
            _remove(root / f"{name}.replaced")
            os.rename(final, root / f"{name}.replaced")
        os.rename(saving, final)
        sync_directory(root)
        _prune(root, folder.config.keep_checkpoints)

    def attempt(act: Callable[[], T]) -> T:
        try:
            return act()
        except OSError as error:
            if ranks.first:
                shutil.rmtree(saving, ignore_errors=True)
            raise UserError(
                f"checkpoint {final} could not be saved: {error.strerror or error}; make room, then resume the run"
            ) from error

    ranks.attempt(lambda: attempt(begin))
    others = ranks.gather(ranks.attempt(lambda: attempt(write_own)))[1:]
    ranks.attempt(lambda: attempt(lambda: finish(others)))
    return final


def load(folder: RunFolder, which: Which) -> Checkpoint:
    """The newest, the best, or that of an iteration; a `UserError` if there is none."""
    if isinstance(which, int):
        found = _first_whole(folder.checkpoints, lambda paths, skipped: _of(paths, which), warn_damaged)
    else:
        found = load_best(folder) if which == "best" else load_newest(folder)
    if found is None and any_saved(folder):
        raise UserError(f"every checkpoint of {folder.path} is damaged; restore one or train the run anew")
    if found is None:
        raise UserError(f"{folder.path} has no checkpoint yet; train it first")
    trainer = found.state.get("trainer")
    leader = trainer.get("leader") if isinstance(trainer, dict) else None
    if not isinstance(trainer, dict) or not all(
        isinstance(trainer.get(name), dict) for name in ("model", "env", "interface")
    ):
        raise UserError(f"checkpoint {found.path} holds no trained policies; remove it, or train the run anew")
    if type(leader) is not int or not 0 <= leader < folder.config.num_policies:
        raise UserError(f"checkpoint {found.path} is of another run, with other policies; remove it")
    return found


def saved_iterations(folder: RunFolder) -> list[int]:
    """Iterations after which the checkpoints there are were saved, ascending."""
    return sorted({_iteration(path) for path in _candidates(folder.checkpoints)})


def _of(paths: list[Path], iteration: int) -> list[Path]:
    return [path for path in paths if _iteration(path) == iteration]


def any_saved(folder: RunFolder) -> bool:
    """Whether there are checkpoints, valid or damaged."""
    return bool(_candidates(folder.checkpoints))


def load_newest(folder: RunFolder, warn: Callable[[str], None] = warn_damaged) -> Checkpoint | None:
    """The newest valid checkpoint, or None. `warn` is called for each damaged one that was skipped."""
    return _first_whole(folder.checkpoints, lambda paths, skipped: paths, warn)


def load_path(path: Path) -> Checkpoint:
    """The checkpoint that rank 0 chose, read by another rank."""
    try:
        return _read(path)
    except Damaged as damage:
        raise UserError(f"checkpoint {path}, which rank 0 has read, is damaged here ({damage})") from None


def load_best(folder: RunFolder, warn: Callable[[str], None] = warn_damaged) -> Checkpoint | None:
    """The valid checkpoint with the highest score; the newest if none has a score; or None."""
    return _first_whole(folder.checkpoints, _by_score, warn)


Skipped = dict[Path, Damaged]
"""Checkpoints that cannot be used, and why."""


def _first_whole(
    root: Path, order: Callable[[list[Path], Skipped], list[Path]], warn: Callable[[str], None]
) -> Checkpoint | None:
    """The first valid checkpoint in the given order. Looks again if a trainer replaced or removed one meanwhile."""
    skipped: Skipped = {}
    found = None
    for attempt in range(RETRIES):
        skipped, found, paths = {}, None, _candidates(root)
        for path in order(paths, skipped):
            try:
                found = _read(path)
                break
            except Damaged as damage:
                skipped[path] = damage
        if not skipped or (attempt and _candidates(root) == paths):
            break
        time.sleep(0.001)
    for path, damage in skipped.items():
        warn(f"checkpoint {path} is damaged ({damage}) and was skipped")
    return found


def _by_score(paths: list[Path], skipped: Skipped) -> list[Path]:
    """The highest score first."""
    entries = []
    for path in paths:
        try:
            entries.append(_read_entry(path))
        except Damaged as damage:
            skipped[path] = damage
    return [entry.path for entry in sorted(entries, key=lambda entry: entry.rank, reverse=True)]


def _rank_file(rank: int) -> str:
    return f"rank-{rank:04d}.safetensors"


def _write_tensors(path: Path, state: Mapping[str, object]) -> dict[str, Any]:
    """Write a state's tensors, and wait until they are on the disk; returns the rest of it and their checksum."""
    from safetensors.torch import save as to_safetensors

    tensors = {}
    encoded = encode(state, tensors)
    data = to_safetensors(tensors)
    write_durably(path, data)
    return {"state": encoded, "tensors": {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}}


def _write(
    saving: Path,
    iteration: int,
    state: Mapping[str, object],
    score: float | None,
    others: Sequence[dict[str, Any] | None],
) -> None:
    """Write both files of a checkpoint and wait until they are on the disk."""
    body = {
        "format": FORMAT,
        "iteration": iteration,
        "score": None if score is None or not math.isfinite(score) else float(score),
        **_write_tensors(saving / TENSORS, state),
        **({"ranks": others} if others else {}),
    }
    write_durably(saving / STATE, json.dumps({"sha256": _digest(body), "body": body}).encode())
    sync_directory(saving)


def _read(path: Path) -> Checkpoint:
    """Read a checkpoint with its tensors, and verify it with those of all ranks."""
    entry = _read_entry(path)
    data, others = _tensors(path, TENSORS, entry.body["tensors"]), entry.others
    for rank, described in enumerate(others, start=1):
        _tensors(path, _rank_file(rank), described["tensors"])
    try:
        state = _decoded(entry.body["state"], data)
        spoiled = unsound(state)
    except Exception as error:  # whatever a stranger's file makes of it; MemoryError among them
        raise Damaged(f"its content makes no sense: {type(error).__name__}") from None
    if spoiled:
        raise Damaged(f"{spoiled} is not finite")
    return Checkpoint(path, entry.iteration, entry.score, state, tuple(others))


def _tensors(path: Path, name: str, described: Mapping[str, Any]) -> bytes:
    """A file of tensors, if it is what was described when it was written."""
    try:
        data = (path / name).read_bytes()
    except OSError as error:
        raise Damaged(f"{name} cannot be read: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != described["sha256"]:
        raise Damaged(f"{name} does not match its checksum")
    return data


def _decoded(encoded: Any, data: bytes) -> dict[str, Any]:
    from safetensors.torch import load as from_safetensors

    return decode(encoded, from_safetensors(data))


def _read_entry(path: Path) -> _Entry:
    """Read and verify everything but the tensors; of their files, only the lengths are checked."""
    try:
        document = json.loads((path / STATE).read_bytes())
        if document["sha256"] != _digest(document["body"]):
            raise Damaged(f"{STATE} does not match its checksum")
        body = document["body"]
        files = [(TENSORS, body["tensors"])]
        files += [(_rank_file(rank), other["tensors"]) for rank, other in enumerate(body.get("ranks", []), start=1)]
        sizes = [((path / name).stat().st_size, described["bytes"], name) for name, described in files]
        _require_kinds(body)
    except FileNotFoundError as error:
        raise Damaged(f"{Path(error.filename).name} is missing") from None
    except OSError as error:
        raise Damaged(f"it cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise Damaged(f"{STATE} is not whole") from None
    if body["iteration"] != _iteration(path):
        raise Damaged(f"it says that it is of iteration {body['iteration']}")
    if body["format"] != FORMAT:
        raise Damaged(f"it has format {body['format']}, this version reads {FORMAT}")
    for size, wanted, name in sizes:
        if size != wanted:
            raise Damaged(f"{name} has {size} of {wanted} bytes")
    return _Entry(path, body)


def _require_kinds(body: dict[str, Any]) -> None:
    """Raise a `TypeError` where a stranger's file has something else in the place of a number."""
    others = body.get("ranks", [])
    numbers = (body["iteration"], body["format"], body["tensors"]["bytes"], *(x["tensors"]["bytes"] for x in others))
    score = body["score"]
    if not all(isinstance(x["state"], dict) for x in (body, *others)) or not all(
        type(number) is int for number in numbers
    ):
        raise TypeError
    if not (score is None or (isinstance(score, float | int) and math.isfinite(score))):
        raise TypeError


def _digest(body: Any) -> str:
    """Checksum over a canonical text, so that the file itself can be formatted as plain JSON."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _candidates(root: Path) -> list[Path]:
    """Folders named like checkpoints, newest first; a replaced one comes right after its successor."""
    if not root.is_dir():
        return []
    found = [path for path in root.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (-_iteration(path), path.name))


def _prune(root: Path, keep: int) -> None:
    """Remove all but the newest `keep` and the best. Damaged ones do not count towards `keep`."""
    whole: dict[int, _Entry] = {}
    for path in _candidates(root):
        with contextlib.suppress(Damaged):
            entry = _read_entry(path)
            whole.setdefault(entry.iteration, entry)  # The successor is listed before what it replaced.
    newest = list(whole.values())[:keep]
    kept = {entry.path for entry in [*newest, max(whole.values(), key=lambda entry: entry.rank)]}
    for path in _candidates(root):
        # A damaged one stays until `keep` newer ones are there: a passing read error must not cost a checkpoint.
        if path not in kept and (_iteration(path) in whole or _iteration(path) < newest[-1].iteration):
            _remove(path)


def _iteration(path: Path) -> int:
    """The iteration in a checkpoint's name."""
    return int(path.name.removesuffix(".replaced"))


def _remove(path: Path) -> None:
    """Rename to a hidden name, then delete: a kill in between leaves no partial checkpoint."""
    if not path.exists():
        return
    hidden = path.with_name(f".removing-{path.name}")
    os.rename(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def remove_leftovers(root: Path) -> None:
    """Delete the hidden folders of a killed save."""
    for path in [*root.glob(".saving-*"), *root.glob(".removing-*")]:
        shutil.rmtree(path, ignore_errors=True)


def _tidy(root: Path) -> None:
    """Clean up after a killed save: delete hidden folders, and restore a `.replaced` one that has no successor."""
    remove_leftovers(root)
    for path in root.glob("*.replaced"):
        if not path.with_suffix("").exists():
            os.rename(path, path.with_suffix(""))

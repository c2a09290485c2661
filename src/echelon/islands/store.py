"""Where islands meet: a folder that all of them see, or an object store by its address.

A file is there as a whole or not at all: in a folder by renaming, in an object store because a put is one.
"""

from pathlib import Path
from typing import Any, Protocol

from echelon.errors import UserError, first_line, install, require_package
from echelon.runs.durable import replace_durably


class TooLarge(Exception):
    """A file that nobody would have written here."""


class Store(Protocol):
    """Files by name, such as `records/a.newest.json`. Any call may raise an `OSError`, or whatever a library raises."""

    def names(self, folder: str) -> list[str]:
        """Of the files in a folder, which may not exist."""
        ...

    def read(self, name: str, limit: int) -> bytes:
        """A file; `TooLarge` if it has more bytes than `limit`."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file, at once."""
        ...

    def remove(self, name: str) -> None: ...


class FolderStore:
    """A folder, local or on a network file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self, folder: str) -> list[str]:
        place = self.path / folder
        return sorted(f"{folder}/{entry.name}" for entry in place.iterdir()) if place.is_dir() else []

    def read(self, name: str, limit: int) -> bytes:
        with (self.path / name).open("rb") as file:
            return _limited(file.read(limit + 1), limit)

    def write(self, name: str, data: bytes) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(path, data)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


class ObjectStore:
    """What `fsspec` opens: `s3://bucket/place`, `gs://`, `az://` and so on. Credentials are those of that library."""

    def __init__(self, address: str) -> None:
        require_package("fsspec", "--islands.place", "islands")
        import fsspec.core  # pyright: ignore[reportMissingImports]

        self._files: Any
        try:
            self._files, root = fsspec.core.url_to_fs(address)
        except ImportError as error:
            how = f"{install('islands')} for s3://, fsspec's package for other stores"
            raise UserError(f"{address} needs a package that is not installed ({first_line(error)}); {how}") from None
        except Exception as error:  # of any library
            raise UserError(f"{address} cannot be opened: {first_line(error)}") from None
        self._root = str(root).rstrip("/")

    def names(self, folder: str) -> list[str]:
        self._files.invalidate_cache()
        place = f"{self._root}/{folder}"
        try:
            found = self._files.ls(place, detail=False)
        except FileNotFoundError:
            return []
        return sorted(f"{folder}/{str(path).rpartition('/')[2]}" for path in found if str(path).rstrip("/") != place)

    def read(self, name: str, limit: int) -> bytes:
        path = f"{self._root}/{name}"
        if int(self._files.info(path)["size"]) > limit:
            raise TooLarge
        return _limited(self._files.cat_file(path), limit)

    def write(self, name: str, data: bytes) -> None:
        self._files.pipe_file(f"{self._root}/{name}", data)

    def remove(self, name: str) -> None:
        self._files.rm_file(f"{self._root}/{name}")


def open_store(place: str) -> Store:
    """A path, or an address with `://`."""
    if "://" in place:
        return ObjectStore(place)
    path = Path(place)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--islands.place {place} cannot be used: {error.strerror}; choose another folder") from None
    return FolderStore(path)


def _limited(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise TooLarge
    return data

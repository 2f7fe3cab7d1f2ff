"""Object stores and all else that fsspec reaches. The only importer of fsspec."""

import importlib
import secrets
import time
from datetime import datetime
from typing import Any

from tenure.scheduler.snapshots.errors import BadLocation
from tenure.scheduler.snapshots.stores import Blocking, Stored

__all__ = ["open_remote"]

NAMED = ("parts/", "packs/")
"""What counts when a manifest names it: half of it is not named. All else is written aside first."""


OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "cos"})
"""They have no folders, only names; what looks like making a folder would make a bucket that is misspelt."""


class Remote(Blocking):
    """A file system of fsspec's."""

    def __init__(self, url: str, fs: Any, root: str) -> None:
        super().__init__()
        self.url, self.fs, self.root = url.rstrip("/"), fs, root.rstrip("/")
        protocol = fs.protocol
        names = {protocol} if isinstance(protocol, str) else set(protocol)
        self._has_folders = not names & OBJECT_STORES
        self._made: set[str] = set()
        """Folders that are there."""

    def where(self, path: str) -> str:
        return f"{self.url}/{path}"

    def failures(self) -> tuple[type[Exception], ...]:
        return (Exception,)  # each of its file systems raises what its own client raises

    def write_now(self, path: str, content: bytes) -> None:
        target = f"{self.root}/{path}"
        self._make(target.rpartition("/")[0])
        if path.startswith(NAMED):
            self.fs.pipe_file(target, content)
            return
        beside = f"{self.root}/unfinished/{secrets.token_hex(8)}"
        self._make(f"{self.root}/unfinished")
        self.fs.pipe_file(beside, content)
        self.fs.mv(beside, target)

    def _make(self, folder: str) -> None:
        if self._has_folders and folder not in self._made:
            self.fs.makedirs(folder, exist_ok=True)
            self._made.add(folder)

    def read_now(self, path: str) -> bytes:
        content: bytes = self.fs.cat_file(f"{self.root}/{path}")
        return content

    def files_now(self, folder: str) -> list[Stored]:
        self.fs.invalidate_cache()
        try:
            found: dict[str, dict[str, Any]] = self.fs.find(f"{self.root}/{folder}", detail=True)
        except FileNotFoundError:
            return []
        skip = len(self.root) + 1
        # Some file systems put a slash before what they find, some don't.
        shift = 0 if not found or next(iter(found)).startswith(self.root) else -1
        return sorted(
            Stored(path[skip + shift :], int(about["size"] or 0), _age_s(about)) for path, about in found.items()
        )

    def delete_now(self, path: str) -> None:
        try:
            self.fs.rm_file(f"{self.root}/{path}")
        except FileNotFoundError:
            pass


def _age_s(about: dict[str, Any]) -> float:
    """As far as it is told: what has no age is taken for new, and kept."""
    for name in ("LastModified", "last_modified", "mtime", "updated", "created"):
        at = about.get(name)
        if isinstance(at, datetime):
            return time.time() - at.timestamp()
        if isinstance(at, int | float):
            return time.time() - at
    return 0.0


def open_remote(url: str) -> Remote:
    """The file system that this URL names. Raises `BadLocation`."""
    try:
        core = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise BadLocation(
            f"{url!r} needs fsspec: install tenure[snapshots] on all nodes and here (and what fsspec itself needs for "
            "this kind of URL, like s3fs). A directory needs nothing."
        ) from error
    try:
        files, root = core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise BadLocation(f"{url!r} can't be reached: {error}") from error
    return Remote(url, files, root)

"""Where snapshots are kept: the port, a directory, this process's memory. Object stores are in `remote`."""

import errno
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import trio

from tenure.scheduler.snapshots.aside import aside
from tenure.scheduler.snapshots.errors import BadLocation, StoreFailed

__all__ = ["Directory", "Memory", "Missing", "Store", "Stored", "open_store"]

WRITERS_MAX = 4
MANIFESTS = "snapshots/"
"""Once one of these is being written, it is waited for: whether there is a snapshot must be known."""
T = TypeVar("T")


class Missing(StoreFailed):
    """There is nothing at this path."""


class Stored(NamedTuple):
    """One file of a store."""

    path: str
    size_bytes: int
    age_s: float


class Store(ABC):
    """Files by path, with "/" in between. All calls raise `StoreFailed` when the place can't be reached."""

    fails_for_good = False
    """Does what `write` has failed to write stay unwritten? A network may still have it on its way."""

    @abstractmethod
    async def write(self, path: str, content: bytes) -> None:
        """All of it, or nothing at all, whenever we are killed; safe from a loss of power when this returns."""

    @abstractmethod
    async def read(self, path: str) -> bytes:
        """All of it. Raises `Missing`."""

    @abstractmethod
    async def files(self, folder: str) -> list[Stored]:
        """All files below a folder; none where it does not exist."""

    @abstractmethod
    async def delete(self, path: str) -> None:
        """Nothing happens where there is none."""


class Blocking(Store):
    """A store whose calls block: they run in threads."""

    def __init__(self) -> None:
        self._limiter: trio.CapacityLimiter | None = None

    async def write(self, path: str, content: bytes) -> None:
        try:
            await self._run(path, lambda: self.write_now(path, content), abandon=not path.startswith(MANIFESTS))
        except StoreFailed as error:
            raise StoreFailed(f"{self.where(path)} can't be written: {_why(error.__cause__)}") from error.__cause__

    async def read(self, path: str) -> bytes:
        return await self._run(path, lambda: self.read_now(path))

    async def files(self, folder: str) -> list[Stored]:
        return await self._run(folder, lambda: self.files_now(folder))

    async def delete(self, path: str) -> None:
        await self._run(path, lambda: self.delete_now(path))

    async def _run(self, path: str, call: Callable[[], T], *, abandon: bool = True) -> T:
        """`abandon`: when this is cancelled, the thread goes on by itself, to whatever end. A place that hangs holds up
        nobody else then, and what half a snapshot leaves behind is not referred to."""
        if self._limiter is None:
            self._limiter = trio.CapacityLimiter(WRITERS_MAX)
        try:
            return await aside(call, limiter=self._limiter, abandon=abandon)
        except FileNotFoundError as error:
            raise Missing(f"{self.where(path)} is missing") from error
        except self.failures() as error:
            raise StoreFailed(f"{self.where(path)}: {_why(error)}") from error

    def failures(self) -> tuple[type[Exception], ...]:
        """What its calls raise when the place can't be reached."""
        return (OSError,)

    @abstractmethod
    def where(self, path: str) -> str:
        """For people."""

    @abstractmethod
    def write_now(self, path: str, content: bytes) -> None: ...
    @abstractmethod
    def read_now(self, path: str) -> bytes: ...
    @abstractmethod
    def files_now(self, folder: str) -> list[Stored]: ...
    @abstractmethod
    def delete_now(self, path: str) -> None: ...


def _why(error: BaseException | None) -> str:
    """What was in the way, and where, if that is known."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"


class Directory(Blocking):
    """A folder that all nodes see under the same path: a disk of this machine, or a network's."""

    fails_for_good = True

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def where(self, path: str) -> str:
        return str(self.root / path)

    def write_now(self, path: str, content: bytes) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"
        try:
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)

    def read_now(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def files_now(self, folder: str) -> list[Stored]:
        now_s, found = time.time(), []
        if self.root.exists() and not self.root.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is no folder", str(self.root))
        for path in (self.root / folder).rglob("*"):
            try:
                about = path.stat()
            except FileNotFoundError:
                continue  # renamed or deleted just now
            if path.is_file():
                found.append(Stored(path.relative_to(self.root).as_posix(), about.st_size, now_s - about.st_mtime))
        return sorted(found)

    def delete_now(self, path: str) -> None:
        target = self.root / path
        target.unlink(missing_ok=True)
        try:
            target.parent.rmdir()
        except OSError:
            pass  # there is more in it


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Memory(Store):
    """Files of this process, for simulations and tests: `memory:NAME`."""

    fails_for_good = True

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.slow_s, self.age_s, self.broken, self.undeletable = 0.0, 0.0, False, False
        self.seen: set[str] = set()
        """For tests to note what they have seen."""

    async def write(self, path: str, content: bytes) -> None:
        await trio.sleep(self.slow_s)
        if self.broken:
            raise StoreFailed(f"{path}: the place is broken")
        self.content[path] = content

    async def read(self, path: str) -> bytes:
        await trio.sleep(self.slow_s)
        if path not in self.content:
            raise Missing(f"{path} is missing")
        return self.content[path]

    async def files(self, folder: str) -> list[Stored]:
        await trio.lowlevel.checkpoint()
        below = sorted(path for path in self.content if path.startswith(f"{folder}/"))
        return [Stored(path, len(self.content[path]), self.age_s) for path in below]

    async def delete(self, path: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.undeletable:
            raise StoreFailed(f"{path}: nothing can be deleted here")
        self.content.pop(path, None)


MEMORIES: dict[str, Memory] = {}


def open_store(url: str) -> Store:
    """A directory (a path or file:// URL), or whatever fsspec reaches. Raises `BadLocation`."""
    parts = urlsplit(url)
    if url.startswith("memory:") and "://" not in url:
        return MEMORIES.setdefault(url, Memory())
    if not url or (parts.scheme == "file" and parts.netloc not in ("", "localhost")):
        raise BadLocation(f"{url!r} is no place for snapshots: give a directory, or a URL like s3://bucket/folder")
    if "://" not in url or parts.scheme == "file":
        path = Path(unquote(parts.path) if parts.scheme == "file" else url)
        if not path.is_absolute():
            # Nodes run elsewhere: what is relative here is another place there.
            raise BadLocation(f"{url!r} is relative: the nodes write there too, so give a path from the root")
        return Directory(path)
    from tenure.scheduler.snapshots.remote import open_remote

    return open_remote(url)

"""The folders of runs on this machine, and what their files say.

    <state>/place              this machine's (or container's) name, made once
    <state>/runs/<tag>/
        run.json               what is to be done (see `tenure.jobs.reporting.RunFile`)
        lock                   held by the wrapper and its watcher for as long as anything of the run may live
        began                  created once: a run that has begun never begins again
        wrapper.json           who holds the lock
        cancel                 somebody wants it to end
        untold.json            what it had still to tell then
        outcome.json           how it ended, once nothing of its work is left
        stdout.log stderr.log wrapper.log

A lock is asked for by `flock`, so the kernel lets it go when the last process that has it is gone, kill -9 or not.
"""

import fcntl
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import platformdirs
from msgspec import Struct

from tenure.scheduler.activities_port import Found, Outcome, Untold

__all__ = ["RunFolder", "place_of", "prune", "state_folder", "write_whole"]

DETAIL_BYTES_MAX = 2000
KEPT_S = 14 * 86_400.0
KEPT_MAX = 1000
T = TypeVar("T")


def state_folder() -> Path:
    """Where this user's runs are kept: TENURE_STATE_DIR, or the system's place for such things."""
    return Path(os.environ.get("TENURE_STATE_DIR") or platformdirs.user_state_path("tenure", appauthor=False))


def place_of(state: Path) -> str:
    """The name of the scope in which a run's folder and processes can be seen: this machine, this state folder."""
    file = state / "place"
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not file.exists():
        mine = file.with_name(f".place-{secrets.token_hex(8)}")
        mine.write_text(secrets.token_hex(6))
        try:
            os.link(mine, file)  # whole, or not at all: two nodes may start at the same time
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    return f"{socket.gethostname()}/{file.read_text().strip()}"


def write_whole(path: Path, data: bytes) -> None:
    """A file that is read is never half written, also after the machine has crashed."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)


class Keeper(Struct, frozen=True):
    """Who holds a run's lock."""

    pid: int
    created_s: float
    """When that process was created: numbers are used again."""
    born: int = 0
    """The same, by no clock that may be set (see `tenure.jobs.born`); 0: not told."""


class RunFolder:
    """One run's folder. It need not exist."""

    def __init__(self, runs: Path, tag: str) -> None:
        self.tag, self.path = tag, runs / tag

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def make(self) -> None:
        """Create it, for its owner's eyes only: commands may have secrets."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)

    # -- the lock ---------------------------------------------------------------------------------

    def lock(self, patience_s: float) -> int | None:
        """Hold the lock; returns its descriptor, or None if somebody else has it. Those who only look have it for
        a moment, so this is worth some patience."""
        descriptor = os.open(self / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline_s = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() > deadline_s or (self / "began").exists():
                    os.close(descriptor)
                    return None
                time.sleep(0.02)

    def begin(self) -> bool:
        """Holding the lock: is this the one time that the run begins?"""
        try:
            os.close(os.open(self / "began", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True

    def is_locked(self) -> bool:
        """Does anything of the run live, or may it?"""
        try:
            descriptor = os.open(self / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    # -- looking ----------------------------------------------------------------------------------

    def find(self) -> Found:
        """See `Launcher.find`."""
        outcome = self.outcome()
        if outcome is not None:
            return Found(state="over", outcome=outcome, untold=_read(self / "untold.json", Untold) or Untold())
        try:
            descriptor = os.open(self / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return Found(state="absent", detail=self._last_words())
        try:
            # Held while we look: nobody begins in between.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            has_begun, outcome = (self / "began").exists(), self.outcome()
        except BlockingIOError:
            keeper = self.keeper()
            return Found(state="running", pid=keeper.pid if keeper is not None else 0)
        finally:
            os.close(descriptor)
        if outcome is not None:
            return self.find()  # it has ended while we looked
        return Found(state="over" if has_begun else "absent", detail=self._last_words())

    def outcome(self) -> Outcome | None:
        """How it ended, if it lived to say so."""
        return _read(self / "outcome.json", Outcome)

    def keeper(self) -> Keeper | None:
        """The wrapper, if it has said who it is."""
        return _read(self / "wrapper.json", Keeper)

    def _last_words(self) -> str:
        try:
            with (self / "wrapper.log").open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - DETAIL_BYTES_MAX))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except FileNotFoundError:
            return ""
        return lines[-1] if lines else ""


def _read(path: Path, type: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=type)
    except (FileNotFoundError, ValueError, RecursionError):  # somebody has damaged it: it says nothing
        return None


def prune(runs: Path) -> None:
    """Remove the folders of runs that are over, and older than two weeks or more than a thousand. Whoever launched
    one of them again would not be admitted."""
    try:
        folders = sorted(_aged(runs))
    except OSError:
        return
    now_s = time.time()
    for n, (changed_s, tag) in enumerate(folders):
        is_surplus = n < len(folders) - KEPT_MAX and now_s - changed_s > 86_400
        if now_s - changed_s > KEPT_S or is_surplus:
            folder = RunFolder(runs, tag)
            if not folder.is_locked():
                shutil.rmtree(folder.path, ignore_errors=True)


def _aged(runs: Path) -> Iterator[tuple[float, str]]:
    for folder in runs.iterdir():
        if not folder.is_dir():
            continue  # nothing of ours
        try:
            yield folder.stat().st_mtime, folder.name
        except FileNotFoundError:
            pass

"""Where embedded members listen: a note in the user's state folder, so that commands find them without being told.

A note whose process is gone says nothing, and is thrown away by whoever comes across it.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs
import psutil

from tenure.jobs.born import born

__all__ = ["announced", "embedded_clusters"]


def _folder() -> Path:
    return Path(os.environ.get("TENURE_STATE_DIR") or platformdirs.user_state_path("tenure", appauthor=False))


@contextmanager
def announced(address: str) -> Iterator[None]:
    """While open, `embedded_clusters` finds this address. Not being able to write the note is no reason to stop."""
    note = _folder() / f"embedded-{os.getpid()}.json"
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = note.with_suffix(".draft")  # whoever finds half a note throws it away
        said = {"cluster": address, "started": psutil.Process().create_time(), "born": _born(os.getpid())}
        draft.write_text(json.dumps(said))
        draft.replace(note)
    try:
        yield
    finally:
        with suppress(OSError):
            note.unlink()


def embedded_clusters() -> list[str]:
    """The embedded clusters of this user's nodes on this machine."""
    found = []
    for note in sorted(_folder().glob("embedded-*.json")):
        try:
            said = json.loads(note.read_text())
            pid = int(note.stem.rpartition("-")[2])
            if _is_it(pid, said):
                found.append(str(said["cluster"]))
                continue
        except (OSError, ValueError, KeyError, TypeError, psutil.Error):
            pass
        with suppress(OSError):
            note.unlink()
    return found


def _is_it(pid: int, said: dict[str, Any]) -> bool:
    """Is this process the one that left this note? Numbers are used again."""
    if (ticks := said.get("born")) and (now := _born(pid)):
        return bool(now == ticks)
    return bool(abs(psutil.Process(pid).create_time() - said["started"]) < 1)


def _born(pid: int) -> int:
    """0 where the system does not tell."""
    try:
        return born(pid) or 0
    except OSError:
        return 0

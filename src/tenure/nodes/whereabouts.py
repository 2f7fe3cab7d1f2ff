"""Where embedded members listen: a note in the user's state folder, so that commands find them without being told.

A note whose process is gone says nothing, and is thrown away by whoever comes across it.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs
import psutil

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
        draft.write_text(json.dumps({"cluster": address, "started": psutil.Process().create_time()}))
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
            if abs(psutil.Process(pid).create_time() - said["started"]) < 1:
                found.append(str(said["cluster"]))
                continue
        except (OSError, ValueError, KeyError, TypeError, psutil.Error):
            pass
        with suppress(OSError):
            note.unlink()
    return found

"""Output that appears at once, by a rename, and of one attempt only.

    .out.tenure-RUN/attempt-2/   written here      ──commit──►   out/   with a marker that names the run

A new attempt first takes away what earlier attempts of its run have written: an attempt that was given up, and still
is at work somewhere, has nothing left to rename. What was committed already is found by its marker.
"""

import ctypes
import errno
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tenure.jobs.pipelines.errors import OutputExists

__all__ = ["MARKER", "Committed", "Output"]

MARKER = "_tenure.json"
AT_FDCWD, RENAME_EXCHANGE = -100, 2


class Committed(Struct, frozen=True, kw_only=True):
    """What the marker in a folder of output says."""

    run: str
    """Names the run: all of its attempts."""
    pipeline: str
    result: dict[str, Any] = {}


class Output:
    """One folder of output, for one attempt of a run."""

    def __init__(self, final: Path, run: str, attempt: int = 1) -> None:
        self.final, self.run = final, run
        self._ours = final.with_name(f".{final.name}.tenure-{re.sub(r'[^A-Za-z0-9._-]', '_', run)}")
        self.staging = self._ours / f"attempt-{attempt}-{secrets.token_hex(4)}"
        """Where this attempt writes. It is there after `begin`, empty."""

    def committed(self) -> Committed | None:
        """What this run has committed here already, if it has."""
        try:
            marker = msgspec.json.decode((self.final / MARKER).read_bytes(), type=Committed)
        except (OSError, msgspec.MsgspecError):
            return None
        return marker if marker.run == self.run else None

    def begin(self) -> None:
        """Take away what other attempts have written."""
        self._ours.mkdir(parents=True, exist_ok=True)
        for number, left in enumerate(self._ours.iterdir()):
            taken = self._ours / f".taken-{os.getpid()}-{number}"
            try:
                left.rename(taken)  # at once: its writer finds nothing any more
            except FileNotFoundError:
                continue  # that very moment it was committed, or taken by another
            shutil.rmtree(taken, ignore_errors=True)
        self.staging.mkdir()

    def commit(self, pipeline: str, result: dict[str, Any], *, overwrite: bool) -> None:
        """Let what was written appear. Raises `OutputExists`; `FileNotFoundError` if this attempt was given up."""
        marker = Committed(run=self.run, pipeline=pipeline, result=result)
        for checksum in self.staging.rglob(".*.crc"):
            checksum.unlink()
        (self.staging / MARKER).write_bytes(msgspec.json.encode(marker))
        try:
            self.staging.rename(self.final)  # takes the place of an empty folder too
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not overwrite:
                what = f"the output {self.final} has appeared meanwhile"
                raise OutputExists(f"{what}: remove it, or set overwrite = true") from error
            _exchange(self.staging, self.final)

    def abandon(self) -> None:
        """Leave nothing of this attempt beside the output: what was not committed, or was replaced by it."""
        shutil.rmtree(self.staging, ignore_errors=True)
        try:
            self._ours.rmdir()
        except OSError:
            pass  # another attempt is at work there, or has tidied up


def _exchange(new: Path, old: Path) -> None:
    """Swap two folders at once, where the system can; else there is a moment in which neither is in its place."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(old)
    if hasattr(libc, "renameat2"):
        if libc.renameat2(*names, RENAME_EXCHANGE) == 0:
            return
        if (code := ctypes.get_errno()) not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(code, os.strerror(code), str(new))
    aside = new.with_name(f"{new.name}.old")
    old.rename(aside)
    new.rename(old)

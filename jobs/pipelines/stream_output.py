"""Output of a stream, batch by batch: each batch is one file, which appears by a rename, once.

    out/part-000000012     the results of batch 12        out/part-current     of a stream whose whole result changes
    .out.tenure-STREAM/attempt-…/     written here

Whoever takes a stream over first takes away what its predecessors have written and not committed: one that was given
up, and still is at work somewhere, has nothing left to rename. A batch that is done again is written over itself.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tenure.jobs.pipelines.errors import OutputExists
from tenure.jobs.pipelines.output import MARKER, Committed, Output

__all__ = ["StreamOutput"]

CURRENT = "part-current"
COPY_BYTES = 2**20


class StreamOutput:
    """One folder of a stream's output, for one attempt."""

    def __init__(self, final: Path, stream: str, *, sync: bool) -> None:
        self.final, self.stream = final, stream
        self._aside = Output(final, stream)
        self._sync = sync

    def open(self, pipeline: str, *, overwrite: bool) -> None:
        """Make the folder ours. Raises `OutputExists` if it is somebody else's."""
        self._aside.begin()
        if self.final.is_dir() and any(self.final.iterdir()) and self._aside.committed() is None:
            if not overwrite:
                raise OutputExists(f"the output {self.final} is there already: remove it, or set overwrite = true")
            self.final.rename(self._aside.staging / "before")
        self.final.mkdir(exist_ok=True)
        marker = Committed(run=self.stream, pipeline=pipeline)
        written = self._aside.staging / MARKER
        written.write_bytes(msgspec.json.encode(marker))
        written.rename(self.final / MARKER)
        shutil.rmtree(self._aside.staging / "before", ignore_errors=True)

    @contextmanager
    def batch(self, number: int) -> Iterator[Path]:
        """A place to write a batch's results in: a folder that is not there yet."""
        place = self._aside.staging / f"batch-{number}"
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def commit(self, number: int, place: Path, *, whole: bool) -> Path | None:
        """Let the results appear: behind those of earlier batches, or in place of all. None: there are none.

        Raises `FileNotFoundError` if this attempt was given up.
        """
        parts = sorted(place.glob("part-*"))
        suffix = ".parquet" if any(part.suffix == ".parquet" for part in parts) else ""
        target = self.final / ((CURRENT if whole else f"part-{number:09}") + suffix)
        if suffix:
            assert len(parts) == 1, f"{len(parts)} Parquet files can't be made one"
            joined = parts[0]
        else:
            joined = place / "joined"
            with joined.open("wb") as file:
                for part in parts:
                    with part.open("rb") as source:
                        shutil.copyfileobj(source, file, COPY_BYTES)
            if joined.stat().st_size == 0 and not whole:
                return None
        if self._sync:
            _sync(joined)
        joined.rename(target)
        if self._sync:
            _sync(self.final)
        return target

    def commit_files(self, place: Path, suffix: str) -> None:
        """Let files appear under their own names, whose suffix no other batch uses. Those that an earlier try at this
        batch has let appear, and that this one does not have, go."""
        files = [file for file in place.iterdir() if not file.name.startswith(".")] if place.is_dir() else []
        for left in {path.name for path in self.final.glob(f"*{suffix}")} - {file.name for file in files}:
            (self.final / left).unlink(missing_ok=True)
        for file in files:
            file.rename(self.final / file.name)

    def abandon(self) -> None:
        """Leave nothing of this attempt beside the output."""
        self._aside.abandon()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

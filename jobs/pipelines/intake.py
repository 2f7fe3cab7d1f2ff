"""What a stream has taken in: a log of chunks, each written once, with its records and where each file goes on.

    chunks/000000012.txt     first line   NUL, then JSON: the places after this chunk
                             then         key NUL value, a line each

A chunk appears whole, under a number that nobody else has taken: of two who write number 12, one learns that it came
too late, and reads on after the other's. So each record is in one chunk, whoever is killed, and whenever.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from tenure.jobs.pipelines.growing import Line, Place

__all__ = ["NUL", "Chunk", "Intake", "chunk_of"]

NUL = "\0"


class Chunk(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the first line of a chunk says."""

    number: int
    records: int = 0
    places: dict[str, Place] = {}
    """Where the files of this chunk go on; in some chunks, where all files do."""
    all: bool = False
    columns: list[str] | None = None
    ended: bool = False
    """Nothing was to come after it."""


class Intake:
    """The log in a folder."""

    def __init__(self, folder: Path) -> None:
        self.chunks = folder / "chunks"
        self.chunks.mkdir(parents=True, exist_ok=True)
        self.places: dict[str, Place] = {}
        self.columns: list[str] | None = None
        self.last = -1
        """The newest chunk's number."""
        self.ended = False
        self._modified_ns = 0
        self.catch_up()

    def catch_up(self) -> None:
        """Read what others have written."""
        for path in sorted(self.chunks.glob("[0-9]*.txt")):
            if int(path.stem) > self.last:
                self._follow(read_chunk(path))
                self._modified_ns = max(self._modified_ns, path.stat().st_mtime_ns)

    def append(self, lines: Iterable[Line], columns: list[str] | None, *, ended: bool = False) -> bool:
        """Write the next chunk. False: somebody else has; nothing was written, and what they have taken is known."""
        lines = list(lines)
        number = self.last + 1
        places = {line.file: line.place for line in lines}
        whole = number % 100 == 0
        chunk = Chunk(
            number=number,
            records=len(lines),
            places=self.places | places if whole else places,
            all=whole,
            columns=columns,
            ended=ended,
        )
        text = NUL + msgspec.json.encode(chunk).decode() + "\n"
        text += "".join([f"{line.key}{NUL}{line.text}\n" for line in lines])
        if not self._publish(number, text.encode()):
            self.catch_up()
            return False
        self._follow(chunk)
        return True

    def _publish(self, number: int, data: bytes) -> bool:
        aside = self.chunks / f".{number:09}-{os.getpid()}"
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # Spark takes chunks in the order of their times, in milliseconds.
        self._modified_ns = max(os.stat(aside).st_mtime_ns, self._modified_ns + 2_000_000)
        os.utime(aside, ns=(self._modified_ns, self._modified_ns))
        try:
            os.link(aside, self.chunks / f"{number:09}.txt")
        except FileExistsError:
            return False
        finally:
            aside.unlink()
        return True

    def _follow(self, chunk: Chunk) -> None:
        self.places = dict(chunk.places) if chunk.all else self.places | chunk.places
        self.columns = chunk.columns or self.columns
        self.last, self.ended = chunk.number, chunk.ended

    def forget(self, below: int) -> None:
        """Chunks before that one are done with. Those since the last that tells all places are kept for them."""
        keep = min(below, self.last - self.last % 100)
        for path in self.chunks.glob("[0-9]*.txt"):
            if int(path.stem) < keep:
                path.unlink(missing_ok=True)


def read_chunk(path: Path) -> Chunk:
    """What a chunk's first line says."""
    with path.open("rb") as file:
        return chunk_of(file.readline())


def chunk_of(line: bytes) -> Chunk:
    """What this first line says."""
    return msgspec.json.decode(line[1:], type=Chunk)

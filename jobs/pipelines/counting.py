"""Counting lines by bytes, so that a reader that begins in the middle of a file knows the number of its first line."""

from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["line_starts"]

CHUNK_BYTES = 2**18


def line_starts(path: str | Path, positions: Iterable[int]) -> Iterator[int]:
    """For each position, in ascending order: how many lines begin at it or before it, but before the file's end.

    A reader of the part of a file that begins at `position` > 0 gives out the lines that begin behind it: the first
    of them has this number. A line ends with LF, CR LF or CR.
    """
    with open(path, "rb") as file:
        at, ended, last = 0, 0, b""
        for position in positions:
            while at < position and (chunk := file.read(min(CHUNK_BYTES, position - at))):
                at += len(chunk)
                ended += last == b"\r" and not chunk.startswith(b"\n")
                ended += chunk.count(b"\n")
                if b"\r" in chunk:  # hardly ever, and looking is quicker than counting
                    ended += chunk.count(b"\r") - chunk.count(b"\r\n") - chunk.endswith(b"\r")
                last = chunk[-1:]
            following = file.peek(1)[:1]
            begun = bool(following) or last not in (b"", b"\n", b"\r")
            yield ended + (last == b"\r" and following != b"\n") + begun

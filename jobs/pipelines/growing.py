"""Files that grow, and folders in which new ones appear: what is new since the last look, line by line."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tenure.jobs.pipelines.errors import MissingInput
from tenure.jobs.pipelines.lines import Input, find_inputs
from tenure.jobs.pipelines.records import header_of
from tenure.jobs.pipelines.sources import Csv, Files

__all__ = ["Growing", "Line", "Place"]

READ_BYTES = 2**20
BOM = b"\xef\xbb\xbf"


class Place(Struct, frozen=True, array_like=True):
    """How far a file has been read: bytes, and lines."""

    at: int = 0
    line: int = 0


class Line(NamedTuple):
    """One record: its key, its text, and where its file goes on after it."""

    key: str
    text: str
    file: str
    place: Place


class Growing:
    """Reads on from given places. A line counts once it is ended; at the stream's end, every line does."""

    def __init__(self, source: Files, path: Path, columns: list[str] | None = None) -> None:
        self._source, self._path = source, path
        self.columns = columns or getattr(source, "columns", None)
        """Of CSV: what the headers say."""

    def new_lines(self, places: Mapping[str, Place], *, at_end: bool = False) -> Iterator[Line]:
        """What comes after these places. Raises `MissingInput`, `BadRecord`."""
        for file in self._files():
            place = places.get(file.shown, Place())
            size = os.stat(file).st_size
            if size < place.at:
                raise MissingInput(f"{file} has become shorter: {size} bytes, and {place.at} of it were read already")
            if size > place.at:
                yield from self._lines(file, place, at_end)

    def _files(self) -> list[Input]:
        try:
            return find_inputs(self._path)
        except MissingInput:
            return []  # what is not there yet will come

    def _lines(self, file: Input, place: Place, at_end: bool) -> Iterator[Line]:
        number = place.line
        for data, end in _ended_lines(file, place.at, at_end):
            text = (data.removeprefix(BOM) if number == 0 else data).decode(errors="replace")
            number += 1
            if number == 1 and isinstance(self._source, Csv) and self._source.header:
                self.columns = header_of(replace(self._source, columns=self.columns), text, file)
            else:
                yield Line(f"{file.shown}:{number - 1}", text, file.shown, Place(end, number))


def _ended_lines(path: str, at: int, at_end: bool) -> Iterator[tuple[bytes, int]]:
    """Each line from there on, without its end, and where the next one begins."""
    with open(path, "rb") as file:
        file.seek(at)
        rest = b""
        while chunk := file.read(READ_BYTES):
            lines = (rest + chunk).splitlines(keepends=True)
            # What is last may go on, and a CR at the very end may be the first half of CR LF.
            rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
            for line in lines:
                at += len(line)
                yield line[: -2 if line.endswith(b"\r\n") else -1], at
        if rest and at_end:
            yield rest.removesuffix(b"\r"), at + len(rest)

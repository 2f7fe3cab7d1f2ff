"""Printing a stream's batches to a file, each line once.

    STATE/printing.txt     the results of the batch
    STATE/printing.json    its number, and where in the file it begins

Both are there before the first line is. So a batch that was interrupted while it was printed, and is done again, is
printed on from where it was, and from the same text: its results are the same again, their order may be another.
"""

import os
import shutil
import stat
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from tenure.jobs.spark.writing import parts_of, print_text

__all__ = ["print_batch"]


class _Begun(Struct, frozen=True, kw_only=True):
    batch: int
    console: str
    at_bytes: int


def print_batch(state: Path, number: int, text: Path, console: IO[str]) -> None:
    """Print the text of a batch. Only on a file can be seen how much of it is there already."""
    status = os.fstat(console.fileno())
    if not stat.S_ISREG(status.st_mode):
        print_text(text, console)
        return
    kept, which, size_bytes = state / "printing.txt", f"{status.st_dev}:{status.st_ino}", status.st_size
    begun = _begun(state)
    if begun is None or (begun.batch, begun.console) != (number, which) or begun.at_bytes > size_bytes:
        begun = _Begun(batch=number, console=which, at_bytes=size_bytes)
        with kept.open("wb") as file:
            for part in parts_of(text):
                with part.open("rb") as source:
                    shutil.copyfileobj(source, file)
        aside = state / ".printing.json"
        aside.write_bytes(msgspec.json.encode(begun))
        aside.rename(state / "printing.json")
    print_text(kept, console, skip_bytes=size_bytes - begun.at_bytes)


def _begun(state: Path) -> _Begun | None:
    path = state / "printing.json"
    return msgspec.json.decode(path.read_bytes(), type=_Begun) if path.exists() else None

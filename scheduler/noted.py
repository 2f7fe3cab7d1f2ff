"""What a node's loop is at, noted in memory that another process can read (the node's warden, see
`tenure.nodes.warden`): a call that keeps the interpreter's lock lets nobody in this one look.

A visit to a job with plain handlers costs a copy of some bytes. While attempts are counted (see `suspicion`), each turn
is noted by its name, too, and so is each step of an async one, from one await to the next. Else async handlers note
nothing: which of them is at work changes too often.
"""

import mmap
import struct
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, NamedTuple

__all__ = [
    "JOB",
    "NOTES",
    "NOTES_BYTES",
    "NO_NOTES",
    "TURN",
    "Board",
    "Note",
    "job_note",
    "read_notes",
    "steps_noted",
    "turn_note",
]

Board = mmap.mmap | bytearray
_JOB_BYTES, _TURN_BYTES = 256, 1280
JOB, TURN = slice(0, _JOB_BYTES), slice(_JOB_BYTES, _JOB_BYTES + _TURN_BYTES)
"""Where the job stands, and where its turn does."""
NOTES_BYTES = _JOB_BYTES + _TURN_BYTES
NOTES, NO_NOTES = slice(0, NOTES_BYTES), bytes(NOTES_BYTES)
_HEAD = struct.Struct("<IHH")


class Note(NamedTuple):
    """What the loop is at."""

    partition: int
    job: str
    type: str
    turn: str
    """Empty: some turn of this job."""


def job_note(partition: int, job: str, type: str) -> bytes:
    """For `JOB`; of a very long id there is none."""
    return _packed(partition, job, type, _JOB_BYTES)


def turn_note(partition: int, job: str, turn: str) -> bytes:
    """For `TURN`."""
    return _packed(partition, job, turn, _TURN_BYTES)


def _packed(partition: int, first: str, second: str, size: int) -> bytes:
    one, two = first.encode(), second.encode("utf-8", "replace")
    if _HEAD.size + len(one) + len(two) > size:
        return bytes(size)
    return (_HEAD.pack(partition, len(one), len(two)) + one + two).ljust(size, b"\0")


@coroutine
def steps_noted(work: Coroutine[Any, Any, Any], note: Callable[[], None], board: Board) -> Generator[Any, Any, Any]:
    """The same work, noted while it is at work and not while it waits."""
    value: Any = None
    error: BaseException | None = None
    while True:
        note()
        try:
            asked = work.send(value) if error is None else work.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            board[NOTES] = NO_NOTES
        value = error = None
        try:
            value = yield asked
        except BaseException as raised:  # noqa: BLE001  # it is the work's
            error = raised


def read_notes(board: Board) -> Note | None:
    """What is noted there by a loop that stands still; None: nothing."""
    found = _read(bytes(board[JOB]))
    if found is None:
        return None
    partition, job, type = found
    exact = _read(bytes(board[TURN]))
    return Note(partition, job, type, exact[2] if exact is not None and exact[:2] == (partition, job) else "")


def _read(stored: bytes) -> tuple[int, str, str] | None:
    partition, first, second = _HEAD.unpack_from(stored)
    if not first:
        return None
    one = stored[_HEAD.size : _HEAD.size + first]
    two = stored[_HEAD.size + first : _HEAD.size + first + second]
    return partition, one.decode(errors="replace"), two.decode(errors="replace")

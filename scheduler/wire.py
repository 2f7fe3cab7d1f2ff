"""What is stored in the grid: values and their bytes.

Every stored value begins with a format byte (see `formats`) and a key id (0: not authenticated); in the first format
MessagePack follows. Structs are arrays on the wire; within a format, fields are only ever added at the end, with
defaults.
"""

from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from tenure.scheduler.activities_wire import Activity
from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.formats import FIRST, MARK, UNAUTHENTICATED, format_of, stamp

__all__ = [
    "EMPTY",
    "SECONDS_MAX",
    "UNSTORABLE",
    "Answer",
    "Batch",
    "DeadLetter",
    "Definition",
    "Envelope",
    "Failure",
    "Head",
    "ImageRef",
    "JobRecord",
    "Kind",
    "Record",
    "Status",
    "Timer",
    "decode",
    "encode",
    "marked",
]

EMPTY = Raw(b"\xc0")

UNSTORABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.EncodeError)
"""What encoding a value raises that can't be stored. (UTF-8 has no bytes for some strings: that is a ValueError.)"""

SECONDS_MAX = 100 * 366 * 86_400
"""A hundred years: times that are further away from now would not all fit into a record."""

T = TypeVar("T")


def encode(value: object, format: int = FIRST) -> bytes:
    """The bytes to store. What others must read in any case is written in the first format."""
    return stamp(format) + format_of(format).encode(value)


def marked(stored: bytes) -> bytes:
    """The same, for those only who know what their versions could leave out: others refuse it, and leave it alone."""
    return bytes((stored[0] | MARK,)) + stored[1:]


def decode(stored: bytes, type: type[T]) -> T:
    """Back from stored bytes; raises `UnreadableFormat` or `Undecodable`, never anything else."""
    if len(stored) < 2:
        raise Undecodable(f"not a stored {type.__name__}: {len(stored)} bytes")
    format = format_of(stored[0] & ~MARK)
    if stored[1] != UNAUTHENTICATED:
        raise UnreadableFormat(
            f"stored with key {stored[1]}, and this version reads only what is not authenticated (key 0)", format=0
        )
    try:
        return format.decode(memoryview(stored)[2:], type)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Undecodable(f"not a stored {type.__name__}: {error}") from error


class Kind:
    """What an envelope asks of its receiver. Plain ints: they are compared once a message."""

    MESSAGE = 0
    """For the job's `on_message`."""
    START = 1
    STOP = 2
    RESUMED = 3
    TIMEOUT = 4
    STATE = 5
    """A question: the job's committed state."""
    COMMAND = 6
    """A question to the partition itself, about one job or all (see `commands`)."""
    TOPIC = 7
    """For every subscriber of the topic that `to` names."""
    TYPE = 8
    """For every job, in the receiving partition, of the job type that `to` names."""
    SUBSCRIBE = 9
    """`source` wants (body true) or no longer wants (false) what is published to the topic that `to` names."""
    CRON = 10
    """The job's recurring timer came due."""
    REPORT = 11
    """What the process of an activity says of itself (see `activities_wire.Report`); answered with a verdict."""
    ACTIVITY = 12
    """Something has become of an activity: for the job's `on_activity`."""
    CREDIT = 13
    """From one partition to another: which jobs take no more (see `credit`). Older versions pass over it."""


class Envelope(Struct, array_like=True, gc=False):
    """One message on its way to a job, topic, job type or partition."""

    to: str
    body: Raw = EMPTY
    kind: int = Kind.MESSAGE
    id: str = ""
    """The publisher's own id: a second one with the same id has no effect."""
    reply: int = 0
    """The number of the question at its client; 0: no answer is wanted."""
    source: str = ""
    """The id of the job that sent it; empty: a client."""
    slot: bytes = b""
    """The lane slot that it came in (filled in by the receiver)."""
    index: int = 0
    """Its place in that slot."""
    attempts: int = 0
    """Tries that failed, or that were running when their node died."""
    topic: str = ""
    """The topic that it came by."""
    origin: str = ""
    """The cluster in which its receiver took it, or made it (filled in by the receiver): turns are called by it. Empty:
    an older version did, or one lives that does not know of this."""


class Batch(Struct, array_like=True, gc=False):
    """The content of one lane slot. The first slot of a client's lane says where its lane before ended."""

    envelopes: list[Envelope]
    after_lane: int = 0
    after_n: int = 0
    cut: int = 0
    """Of a partition's slot: the last cut that its sender had committed before it numbered this."""
    incarnation: int = 0
    """Of a client's slot: the incarnation of the cluster in which its lane was begun. 0: the client knew of none, or is
    of an older version. (The lanes of partitions are numbered by it.)"""
    holds_back: bool = False
    """Does its sender hold back by itself what is for a job that takes no more, if it is told (see `holding`)?"""


class Definition(Struct, array_like=True, frozen=True, gc=False):
    """What a job should be: the value of the `jobs` map. Removal is a value too (wanted: removed)."""

    type: str
    parameters: Raw
    generation: int
    """Never used again for this id. 0: the tombstone of a job that never was."""
    revision: int
    """Grows with every change to this definition."""
    wanted: str
    """running, paused or removed."""
    version: int = 1
    application: str = ""
    pickled: bytes = b""
    """A pickled callable, where the job's type has no registered name."""
    birth: bytes = b""
    """Never used twice, so that no two definitions of one id have the same bytes."""
    at_ms: int = 0
    """Of a tombstone: when it became one."""
    incarnation: int = 0
    """Of one that came with a snapshot: the incarnation that it was restored into. So it has other bytes than before,
    and what somebody of before wants to change there is not there. 0: it came with none."""


class Status:
    """What a job's record says of it."""

    RUNNING = "running"
    PAUSED = "paused"
    FAILED = "failed"
    FINISHING = "finishing"
    """It has asked for its own end."""
    STOPPING = "stopping"
    """Removal is wanted; what was accepted is being finished."""


class Timer(Struct, array_like=True, frozen=True, gc=False):
    """A job's timers: one that rings once, and one that recurs. Times are wall-clock milliseconds."""

    due_ms: int = 0
    """0: none."""
    cron: str = ""
    zone: str = ""
    cron_due_ms: int = 0
    cron_passed_ms: int = 0
    """Up to here, what recurs has rung or was passed over; it stays when there is nothing that recurs any more."""
    due_by: int = 0
    """Which turn has set what rings once (see `turnid`). 0: an older version's."""

    def first_ms(self) -> int:
        """When the next of them is due; 0: never."""
        if self.due_ms and self.cron_due_ms:
            return min(self.due_ms, self.cron_due_ms)
        return self.due_ms or self.cron_due_ms


class Failure(Struct, array_like=True, frozen=True, gc=False):
    """Why a job's turn failed, and how often it was tried."""

    error: str
    traceback: str
    event: str
    attempts: int
    at_ms: int
    retry_ms: int = 0
    """When it will be tried again; 0: not by itself."""


class JobRecord(Struct, array_like=True, frozen=True, gc=False):
    """What a job is: as committed in its partition's journal. Replaced, never changed."""

    type: str
    version: int
    generation: int
    revision: int
    status: str
    state: bytes
    turns: int = 0
    """Committed turns."""
    timer: Timer | None = None
    failure: Failure | None = None
    topics: tuple[str, ...] = ()
    progress: tuple[int, int] | None = None
    pickled: bytes = b""
    application: str = ""
    activities: tuple[Activity, ...] = ()


class Answer(Struct, array_like=True, frozen=True, gc=False):
    """The answer to a client's question number `n`."""

    n: int
    ok: bool
    body: Raw
    """The result, or [error name, text]."""


class DeadLetter(Struct, array_like=True, frozen=True, gc=False):
    """A message that no job could take, with the reason."""

    n: int
    envelope: Envelope
    reason: str
    detail: str
    at_ms: int


class Record(Struct, array_like=True, gc=False):
    """One slot of a partition's journal: a group of turns, an opening or a closing, committed as one."""

    id: str
    """Never used for two records."""
    after: str
    """The id of the record before; a replay passes over records that name another."""
    kind: int
    epoch: int
    node: str
    at_ms: int
    successor: str = ""
    """Of a closing: the node that may open at once."""
    jobs: dict[str, JobRecord] = {}
    gone: list[str] = []
    cursors: dict[bytes, tuple[int, int]] = {}
    """sender -> (lane, the next slot that has not been taken)"""
    forgotten: list[bytes] = []
    watermark: int = 0
    mailed: dict[str, list[Envelope]] = {}
    """job -> messages that were read, and whose turns have not finished"""
    unmailed: dict[str, int] = {}
    """job -> how many of its oldest mailbox entries are done"""
    outbox: list[tuple[int, int, bytes]] = []
    """(partition, n, the slot's very bytes)"""
    arrived: dict[int, int] = {}
    """partition -> all slots below this are known to be stored"""
    answers: list[tuple[bytes, Answer]] = []
    answered: list[tuple[bytes, int]] = []
    remembered: list[tuple[str, str, int, Answer | None]] = []
    """(job, message id, until ms, the answer to repeat)"""
    buried: list[DeadLetter] = []
    exhumed: list[int] = []
    steps: list[tuple[str, str, str, bytes]] = []
    """(job, turn id, name, result) of finished `once` steps of turns that have not finished"""
    attempted: dict[str, list[int]] = {}
    """job -> attempts at the first messages of its mailbox"""
    subscribed: list[tuple[str, str, bool]] = []
    """(topic, job, wanted)"""
    cut: int = 0
    """The state as this record leaves it is the partition's part of the snapshot of this number."""
    letters_lost: tuple[int, int] = (0, 0)
    """How many dead letters were dropped, and how many have expired."""
    generations: int = 0
    """Tombstones with generations up to this may be forgotten: none of them is given again."""
    begun: dict[bytes, tuple[int, int, int, str, int]] = {}
    """sender -> (lane, n, index, after, count): its next slot has been dealt with up to the message of this index, and
    of that one (to a topic's subscribers, say) up to `after`, for so many. Who does not know this would begin again: a
    record that has it is marked (see `formats`)."""
    edited: list[tuple[str, int, int, Envelope | None]] = []
    """(job, at, count, envelope): changes inside a mailbox that is too large to be written anew, one after the other,
    before all else that this record does to it. The envelope goes in at this place; or, where there is none, so many
    go out from there. Who does not know this would have another mailbox: a record that has it is marked, too."""


class RecordKind:
    """What a journal record is."""

    TURNS = 0
    OPENING = 1
    CLOSING = 2


class ImageRef(Struct, array_like=True, frozen=True, gc=False):
    """Which image, in how many chunks, and how to know that it is whole."""

    epoch: int
    serial: int
    chunks: int
    size_bytes: int
    checksum: bytes


class Head(Struct, array_like=True, frozen=True, gc=False):
    """Where a partition's journal begins, and which opening claimed it last."""

    formation: str
    """Which forming of the cluster made this head; another one's is no head of ours."""
    incarnation: int
    first: int = 0
    """The first journal slot that is not in the image."""
    image: ImageRef | None = None
    claim: str = ""

"""The receiving end of lanes: which slots have come in, and which may be taken next. Pure.

Slots come as hints in any order, doubled, late, or not at all; a lane gives them out in order, each
once, never passing over a number that reads absent. A client's lanes follow each other: the first slot
of the next says where the last one ended, we get there first, and taking it closes the last for good.
The rules are those of `tests/models/lanes_model.py`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Raw, Struct

from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.keys import is_partition_sender, partition_sender, slot_key, split_slot_key
from tenure.scheduler.salvage import start_of
from tenure.scheduler.wire import EMPTY, decode, encode

__all__ = ["PROOF", "InLanes", "Slot", "is_passed"]

GAP_MAX = 64
"""So many slots of a gap are looked for at once."""

PROOF = encode(None)
"""What is put into a lane's next slot to prove that nothing was there. It is no message."""


class _Start(Struct, array_like=True, gc=False):
    """A `Batch` whose messages are not looked at."""

    envelopes: Raw
    after_lane: int = 0
    after_n: int = 0
    cut: int = 0
    incarnation: int = 0
    holds_back: bool = False


def _start_of(value: bytes) -> _Start | None:
    try:
        return decode(value, _Start)
    except Undecodable:
        found = start_of(value)
        return None if found is None else _Start(EMPTY, **found)
    except UnreadableFormat:
        return None


class Slot(NamedTuple):
    """One lane slot that is next in order."""

    key: bytes
    sender: bytes
    lane: int
    n: int
    value: bytes


def is_passed(key: bytes, cursors: dict[bytes, tuple[int, int]], watermark: int, incarnation: int = 0) -> bool:
    """Is this the key of a slot below these cursors, or of a lane that is closed, forgotten, or of a cluster before?"""
    parts = split_slot_key(key)
    return parts is not None and _is_below(*parts, cursors, watermark, incarnation)


def _is_below(
    sender: bytes, lane: int, n: int, cursors: dict[bytes, tuple[int, int]], watermark: int, incarnation: int
) -> bool:
    cursor = cursors.get(sender)
    if cursor is None:
        # The lanes of partitions are numbered by the cluster's incarnation.
        return lane < incarnation if is_partition_sender(sender) else lane <= watermark
    return (lane, n) < cursor


class InLanes:
    """All lanes into one partition, with the cursors as far as they are taken (committed or about to be)."""

    def __init__(self, cursors: dict[bytes, tuple[int, int]], watermark: int, incarnation: int = 0) -> None:
        self.cursors = dict(cursors)
        self.watermark, self.incarnation = watermark, incarnation
        self.waiting: dict[bytes, dict[tuple[int, int], bytes]] = {}
        """sender -> (lane, n) -> value, of what has not been taken"""
        self.fresh: dict[bytes, None] = {}
        """Senders with something new, in the order in which it came."""
        self.waiting_bytes = 0
        self.outlived: list[bytes] = []
        """The keys of slots that clients wrote into the cluster before a restore, and that landed after it. They have
        no effect, and may be deleted."""

    def offer(self, key: bytes, value: bytes) -> bool:
        """A slot was seen. False if it is consumed, dead or no slot at all: it may be deleted."""
        parts = split_slot_key(key)
        if parts is None:
            return False
        sender, lane, n = parts
        if self.is_consumed(sender, lane, n):
            return False
        if value == PROOF:
            return True
        slots = self.waiting.get(sender)
        if slots is None:
            slots = self.waiting[sender] = {}
        if (lane, n) not in slots:
            slots[lane, n] = value
            self.waiting_bytes += len(value)
        self.fresh[sender] = None
        return True

    def is_waiting(self, key: bytes) -> bool:
        """Has this slot been seen, and not been taken yet?"""
        parts = split_slot_key(key)
        return parts is not None and parts[1:] in self.waiting.get(parts[0], ())

    def is_consumed(self, sender: bytes, lane: int, n: int) -> bool:
        """Does this slot lie below what was taken, or in a lane that is closed or forgotten?"""
        return _is_below(sender, lane, n, self.cursors, self.watermark, self.incarnation)

    def taken_of(self, partition: int, incarnation: int) -> int:
        """Up to where that partition's lane has been taken."""
        lane, n = self.cursors.get(partition_sender(partition), (0, 0))
        return n if lane == incarnation else 0

    def next_slot(self, sender: bytes, begun: tuple[int, int] | None = None) -> Slot | None:
        """The slot of this sender that may be taken now, if it has come in; first the one that was `begun`."""
        slots = self.waiting.get(sender)
        if not slots:
            return None
        at = begun or self._next_of(slots, self.cursors.get(sender))
        if at is None or at not in slots:
            return None
        if at[1] == 0 and self.incarnation > 1 and self._is_outlived(_start_of(slots[at])):
            self.drop_outlived(sender)
            return self.next_slot(sender)
        lane, n = at
        return Slot(slot_key(sender, lane, n), sender, lane, n, slots[at])

    def _next_of(self, slots: dict[tuple[int, int], bytes], cursor: tuple[int, int] | None) -> tuple[int, int] | None:
        if cursor is not None and cursor in slots:
            return cursor
        # Not in order: the lane before may not have been read to its end.
        for lane in sorted(lane for lane, n in slots if n == 0):
            if self._may_begin(slots[lane, 0], cursor):
                return lane, 0
        return None

    def _may_begin(self, value: bytes, cursor: tuple[int, int] | None) -> bool:
        start = _start_of(value)
        if start is None:
            return cursor is None
        if start.after_n == 0 or self._is_outlived(start):
            return True
        if cursor is None:
            return start.after_lane <= self.watermark
        return (start.after_lane, start.after_n) <= cursor

    def _is_outlived(self, start: _Start | None) -> bool:
        return start is not None and 0 < start.incarnation < self.incarnation

    def drop_outlived(self, sender: bytes) -> None:
        """Of what waits of this sender, let go of what was written into a cluster before."""
        slots = self.waiting.get(sender, {})
        for lane, n in [at for at, value in slots.items() if self._is_outlived(_start_of(value))]:
            self.waiting_bytes -= len(slots.pop((lane, n)))
            self.outlived.append(slot_key(sender, lane, n))
        if not slots:
            self.waiting.pop(sender, None)

    def take(self, slot: Slot) -> None:
        """This slot's messages are in hand: its number will not be given out again."""
        self.cursors[slot.sender] = (slot.lane, slot.n + 1)
        slots = self.waiting[slot.sender]
        self.waiting_bytes -= len(slots.pop((slot.lane, slot.n)))
        if slots and slot.n == 0:
            # The lane before is closed: what is left of it has no effect.
            self._drop(slots, (slot.lane, 1))
        if not slots:
            del self.waiting[slot.sender]

    def _drop(self, slots: dict[tuple[int, int], bytes], below: tuple[int, int]) -> None:
        for at in [at for at in slots if at < below]:
            self.waiting_bytes -= len(slots.pop(at))

    def gaps(self) -> Iterator[list[bytes]]:
        """For each sender the keys of slots that hold up others, the next one first: worth a read, since their events
        may have been lost."""
        for sender, slots in self.waiting.items():
            cursor = self.cursors.get(sender)
            if cursor is None:
                lanes = {lane for lane, _ in slots}
                if missing := [slot_key(sender, lane, 0) for lane in lanes if (lane, 0) not in slots]:
                    yield missing
            elif cursor not in slots and not any(
                n == 0 and self._may_begin(slots[lane, n], cursor) for lane, n in slots
            ):
                yield list(self._missing(sender, slots, cursor))

    def _missing(
        self, sender: bytes, slots: dict[tuple[int, int], bytes], cursor: tuple[int, int]
    ) -> Iterator[bytes]:
        lane, first = cursor
        end = max((n for its_lane, n in slots if its_lane == lane), default=first + 1)
        for n in range(first, min(end, first + GAP_MAX)):
            if (lane, n) not in slots:
                yield slot_key(sender, lane, n)
        if lane != (last := max(slots)[0]) and (last, 0) not in slots:
            yield slot_key(sender, last, 0)

    def is_beginning_below(self, watermark: int) -> bool:
        """Does the first slot of an unknown client wait, in a lane that this watermark would kill?"""
        return any(
            sender not in self.cursors and not is_partition_sender(sender) and n == 0 and lane <= watermark
            for sender, slots in self.waiting.items()
            for lane, n in slots
        )

    def forget(self, sender: bytes) -> None:
        """This client's lane was proved to have ended."""
        lane, _ = self.cursors.pop(sender)
        self.watermark = max(self.watermark, lane)
        # What waits in lanes that are dead by now: their first slots never came.
        for other in [other for other in self.waiting if other not in self.cursors and not is_partition_sender(other)]:
            self._drop(self.waiting[other], (self.watermark + 1, 0))
            if not self.waiting[other]:
                del self.waiting[other]

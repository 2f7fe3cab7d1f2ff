"""A partition's images: written at a committed position, beside the commits; what each replaces is cleared."""

import math
from collections.abc import Callable
from typing import Any

import trio

from tenure.scheduler.bulkhead import Pauses
from tenure.scheduler.errors import Final, Undecodable, UnreadableFormat
from tenure.scheduler.grid.port import Map
from tenure.scheduler.image import Frozen, checksum_of
from tenure.scheduler.journal import Journal, TenureOver
from tenure.scheduler.keys import chunk_key, journal_key, split_chunk_key
from tenure.scheduler.texts import told
from tenure.scheduler.wire import Head, ImageRef, Record, RecordKind, decode

__all__ = ["Imaging", "write_chunks"]

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, modulo one, lie as far from each other as can be."""


class Imaging:
    """How one tenure writes images of its partition. There is one for each open journal."""

    def __init__(self, journal: Journal, log_error: Callable[[str, BaseException], None] | None = None) -> None:
        self._log_error, self._pauses, self._not_before_s = log_error, Pauses(), -math.inf
        self.journal, self.grid = journal, journal.grid
        self.partition, self.settings = journal.partition, journal.settings
        # Partitions that were opened together, under an even load, would all write theirs in the same second.
        self._share = (2 + journal.partition * GOLDEN % 1) / 3
        """So much of what a journal may grow to is this one's."""
        self._serial = 0
        self._upto = 0
        """So many bytes of the journal are in the image."""
        self._is_writing = False

    def is_due(self) -> bool:
        """Has the journal outgrown its image, and is none being written?"""
        if self._is_writing:
            return False
        journal, settings = self.journal, self.settings
        last_bytes = journal.head.image.size_bytes if journal.head.image is not None else 0
        grown, slots = journal.bytes - self._upto, journal.slot - journal.head.first
        bytes_max = self._share * max(last_bytes, settings.image_journal_bytes_min)
        is_due = grown > bytes_max or slots > self._share * settings.image_journal_slots_max
        return is_due and trio.current_time() >= self._not_before_s

    def start(self, start: Callable[..., Any]) -> None:
        """Begin the next one, in a task of its own."""
        self._is_writing = True
        start(self._write_one)

    async def _write_one(self) -> None:
        try:
            await self.write()
        except (TenureOver, Final):
            raise
        except Exception as error:
            if self._log_error is None:
                raise
            pause_s = self._pauses.next_s()  # the journal is whole without it; it only grows meanwhile
            self._not_before_s = trio.current_time() + pause_s
            what = f"partition {self.partition}: no image could be written, tried again in {pause_s:g} s: {told(error)}"
            self._log_error(what, error)
        finally:
            self._is_writing = False

    async def write(self) -> None:
        """Write the state as it is now, move the head to it, clear what it replaces. Commits may go on meanwhile.

        Raises `TenureOver` if the head was claimed by another.
        """
        frozen, upto = Frozen(self.journal.state), self.journal.bytes
        self._serial += 1
        ref = await write_chunks(self.journal, frozen, self.journal.state.epoch, self._serial)
        old = self.journal.head
        head = Head(old.formation, old.incarnation, frozen.next_slot, ref, old.claim)
        if not await self.journal.move_head(head):
            raise TenureOver(f"partition {self.partition}: its head was claimed by another")
        self._upto = upto
        self._clear(old, head)

    def _clear(self, old: Head, new: Head) -> None:
        """Delete what the new image replaces. Openings stay: a zombie's next slot must never be empty."""
        slots = [journal_key(n) for n in range(old.first, new.first) if not self._is_fence(n)]
        self.grid.discard(Map.JOURNAL, self.partition, slots)
        self.journal.openings = {n for n in self.journal.openings if n >= new.first}
        if old.image is not None:
            chunks = [chunk_key(old.image.epoch, old.image.serial, n) for n in range(old.image.chunks)]
            self.grid.discard(Map.IMAGES, self.partition, chunks)

    def _is_fence(self, slot: int) -> bool:
        return slot in self.journal.openings

    async def sweep(self) -> None:
        """Delete what earlier clearings left: slots below the head that are no openings, chunks of no image.

        Only for a tenure that has claimed the head: then no earlier one can make a head of those chunks.
        """
        async for page in self.grid.scan(Map.JOURNAL, self.partition):
            first = self.journal.head.first
            below = [entry for entry in page if len(entry.key) == 8 and int.from_bytes(entry.key, "big") < first]
            passed = [entry.key for entry in below if not _is_opening(entry.value)]
            self.grid.discard(Map.JOURNAL, self.partition, passed)
        stale: list[bytes] = []
        async for page in self.grid.scan(Map.IMAGES, self.partition):
            stale += [entry.key for entry in page if self._is_stale_chunk(entry.key)]
        self.grid.discard(Map.IMAGES, self.partition, stale)

    def _is_stale_chunk(self, key: bytes) -> bool:
        chunk = split_chunk_key(key)
        if chunk is None or chunk[0] > self.journal.state.epoch:
            return False
        named = self.journal.head.image
        return chunk[0] < self.journal.state.epoch and (named is None or chunk[:2] != (named.epoch, named.serial))


async def write_chunks(journal: Journal, frozen: Frozen, epoch: int, serial: int) -> ImageRef:
    """Write an image under a name that nobody else takes, in as many chunks as it needs."""
    chunks = 0
    written: list[bytes] = []
    for chunk in frozen.chunks(journal.settings.chunk_bytes_max, journal.encode):
        if not await journal.write_once(Map.IMAGES, chunk_key(epoch, serial, chunks), chunk):
            raise TenureOver(f"partition {journal.partition}: another wrote image {epoch}.{serial}")
        written.append(chunk)
        chunks += 1
    return ImageRef(epoch, serial, chunks, sum(map(len, written)), checksum_of(written))


def _is_opening(stored: bytes) -> bool:
    try:
        return decode(stored, Record).kind == RecordKind.OPENING
    except (Undecodable, UnreadableFormat):
        return True

"""A partition's journal: how a tenure opens, commits and clears, such that two owners never both believe.

                                                          ┌──► confirm the log's end ─────────────────┐
    read head, image ──► replay to the first empty slot ──┴──► write the opening ──► claim the head ──┴──► own
         ▲                      ▲                                  │ taken               │ another's,
         │                      └──────────────────────────────────┘                     │ or the log's end has changed
         └───────────────────────────────────────────────────────────────────────────────┘

    own: commit n, n+1, … by write-once slots ──► a slot is another's: the tenure is over
         image at a committed position ──► move the head ──► clear old slots, never openings (`imaging`)

The steps are those of `tests/models/journal_model.py`, which checks them exhaustively; change both together.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, nullcontext
from random import Random

import trio

from tenure.scheduler.errors import PartitionLost, Undecodable
from tenure.scheduler.fences import first_epoch
from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.image import checksum_of, thaw_at_rest
from tenure.scheduler.keys import HEAD, chunk_key, journal_key
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.state import PartitionState
from tenure.scheduler.wire import Head, ImageRef, Record, RecordKind, decode, encode, marked

__all__ = ["Journal", "TenureOver"]

READ_FIRST, READ_AHEAD = 8, 32
READ_BYTES = 8 * 2**20
"""About so much of a journal is asked for at once."""
NOTED_BYTES_MAX = 512
"""So much of what an error came of is kept with it."""
LARGE_BYTES = 128 * 1024
"""A node reads few images at once that are larger: see `Host.large_images`."""


class TenureOver(Exception):
    """Another node has opened this partition: forget everything in memory."""


class Journal:
    """One node's view of one partition's journal. Everything it needs to know is read from the grid."""

    def __init__(
        self,
        grid: Grid,
        partition: int,
        *,
        formation: str,
        settings: NodeSettings,
        new_id: Callable[[], str],
        random: Random,
        report: Callable[[str], None],
        encode: Callable[[object], bytes] = encode,
        large_images: trio.Semaphore | None = None,
        rest: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        self.grid, self.partition, self.settings, self.encode = grid, partition, settings, encode
        self._large_images = large_images or trio.Semaphore(1)
        """Held while one is read."""
        self.rest = rest
        """Called now and then in the middle of long work."""
        self.formation = formation
        self.new_id, self.random, self.report = new_id, random, report
        self.state = PartitionState()
        self.head = Head(formation, 0)
        self.stored_head = b""
        """Its very bytes: another version may write the same head with others."""
        self.slot = 0
        """The slot to be looked at, or written, next."""
        self.doubts: list[tuple[int, bytes]] = []
        """What their writers may have left without a backup, with its slots: the last record of the log; where that is
        an opening, which may be all that its node came to, also what is before it; and what was passed over, since a
        hole beneath the log would hide what is above. What is in the image is certain."""
        self.openings: set[int] = set()
        """Slots since the head that must never be cleared."""
        self.seen: set[str] = set()
        """The ids of all records that were replayed since the head."""
        self.damaged_at: int | None = None
        self._batch = 1
        """So many slots are asked for first, in the next look."""
        self._moving = False
        """Is the head on its way from one value to another?"""
        self.closed_before = True
        """Had the tenure before ours closed, when we opened?"""
        self.bytes = 0
        """So many of the journal are behind the image that it was read from."""

    async def open(self, node: str, at_ms: Callable[[], int], *, followed: bool = False) -> None:
        """Become the owner: everything committed so far is in `state`, and nobody else can commit from now on.

        Call `read` and `follow` before, as often as you like; say so if that was just now.
        """
        while True:
            if not followed:
                await self.follow()
            followed = False
            self.closed_before = self.state.closed_for is not None or self.state.epoch == 0
            now_ms = at_ms()
            epoch = self.state.epoch + 1 if self.state.epoch else first_epoch(self.head.incarnation, now_ms)
            record = Record(self.new_id(), self.state.last_id, RecordKind.OPENING, epoch, node, now_ms)
            doubts = self.doubts.copy()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._confirm, doubts)
                written = await self._append(record)
                claimed = written and await self._claim(record.id)
            if claimed and not doubts:
                return
            if written or doubts:
                await self.read()

    async def read(self) -> None:
        """Begin at the head and its image. Raises `PartitionLost` if the head stays missing."""
        deadline = trio.current_time() + self.settings.lost_after_s
        attempt = 0
        while True:
            try:
                stored = await self.grid.get(Map.HEADS, self.partition, HEAD)
                head = decode(stored, Head) if stored is not None else None
                if head is not None and head.formation == self.formation and await self._read_image(head):
                    self.stored_head = stored or b""
                    return
                problem = (
                    "its head is missing"
                    if stored is None
                    else "its head is not of this cluster, or its image is not whole"
                )
            except Undecodable as error:
                problem = str(error)
            except GridError:
                deadline = max(deadline, trio.current_time() + self.settings.lost_after_s)
                problem = ""
            if problem and trio.current_time() >= deadline:
                raise PartitionLost(
                    f"partition {self.partition} is lost: {problem}. Its jobs stop here; restore them from a snapshot. "
                    "All other partitions go on."
                )
            attempt += 1
            await self.pause(attempt)

    async def _read_image(self, head: Head) -> bool:
        state, ref = PartitionState(), head.image
        if ref is not None:
            async with self._large_images if ref.size_bytes > LARGE_BYTES else nullcontext():
                chunks = await self._read_chunks(ref)
            if len(chunks) < ref.chunks or checksum_of(chunks) != ref.checksum:
                return False
            state = await thaw_at_rest(chunks, self.rest)
        self.state, self.head = state, head
        self.slot, self.doubts, self.openings = head.first, [], set()
        self.seen, self.damaged_at = {state.last_id}, None
        self.bytes = 0
        return True

    async def _read_chunks(self, ref: ImageRef) -> list[bytes]:
        """As many as are there."""
        chunks: list[bytes] = []
        for first in range(0, ref.chunks, READ_AHEAD):
            keys = [chunk_key(ref.epoch, ref.serial, n) for n in range(first, min(first + READ_AHEAD, ref.chunks))]
            found = await self.grid.get_all(Map.IMAGES, self.partition, keys)
            if len(found) < len(keys):
                break
            chunks += [found[key] for key in keys]
        return chunks

    async def follow(self) -> None:
        """Replay on, to the first slot that reads empty."""
        attempt = 0
        while True:
            try:
                async with aclosing(self._slots()) as slots:
                    async for stored in slots:
                        self._replay(stored)
                        if len(stored) >= LARGE_BYTES:
                            await self.rest()
                return
            except GridError:
                attempt += 1
                await self.pause(attempt)

    def expect_more(self) -> None:
        """The next look will find records: ask for several at once."""
        self._batch = READ_FIRST

    async def _slots(self) -> AsyncGenerator[bytes, None]:
        batch, self._batch = self._batch, 1
        while True:
            keys = [journal_key(self.slot + n) for n in range(batch)]
            found = await self.grid.get_all(Map.JOURNAL, self.partition, keys)
            size_bytes = 0
            for key in keys:
                if key not in found:
                    return
                size_bytes += len(found[key])
                yield found[key]
            # A few large records are as much as one call should bring.
            batch = min(batch * 4, READ_AHEAD) if size_bytes < READ_BYTES // 4 else max(1, batch // 4)

    def _replay(self, stored: bytes) -> None:
        try:
            record = decode(stored, Record)
        except Undecodable as error:
            # Nobody who follows the protocol wrote this. It stays where it is, for somebody to look at.
            self.report(f"partition {self.partition}: journal slot {self.slot} is undecodable, passed over: {error}")
            self.openings.add(self.slot)
            self.damaged_at = self.slot
            self._step_over(stored)
            return
        try:
            if self._chains(record):
                self._add(record, stored)
            else:
                self._pass_over(record, stored)
        except Exception as error:
            error.add_note(f"journal slot {self.slot} of partition {self.partition}: {stored[:NOTED_BYTES_MAX].hex()}")
            raise
        self.seen.add(record.id)

    def _pass_over(self, record: Record, stored: bytes) -> None:
        """A record of a tenure that was over, written too late to count. An opening is a fence all the same."""
        if self.damaged_at is not None and record.after not in self.seen:
            raise PartitionLost(
                f"partition {self.partition} is damaged: journal slot {self.slot} follows a record that is gone, "
                f"and slot {self.damaged_at} can't be decoded. Restore its jobs from a snapshot."
            )
        if record.kind == RecordKind.OPENING:
            self.openings.add(self.slot)
        self._step_over(stored)

    def _step_over(self, stored: bytes) -> None:
        self.doubts.append((self.slot, stored))
        self.slot += 1

    def _chains(self, record: Record) -> bool:
        """Is this the log's next record, and not one of a tenure that was over?"""
        return record.after == self.state.last_id

    def _add(self, record: Record, stored: bytes) -> None:
        if record.kind == RecordKind.OPENING:
            self.openings.add(self.slot)
            self.doubts.append((self.slot, stored))
        else:
            self.doubts = [(self.slot, stored)]  # whoever commits has confirmed all that is before its opening
        self.state.apply(record, self.slot)
        self.slot += 1
        self.bytes += len(stored)

    async def _confirm(self, doubts: list[tuple[int, bytes]]) -> None:
        """Write these records again: their writers may have left them without a backup. What has one is taken out of
        `doubts`; what stays there is gone from the grid."""
        attempt = 0
        while doubts:
            slot, stored = doubts[0]
            try:
                if not await self.grid.replace_if_same(Map.JOURNAL, self.partition, journal_key(slot), stored, stored):
                    return
                del doubts[0]
            except GridError:
                attempt += 1
                await self.pause(attempt)

    async def _claim(self, opening: str) -> bool:
        """From the head that the replay began with, to the same with our opening: what was read still stands."""
        head = Head(self.head.formation, self.head.incarnation, self.head.first, self.head.image, opening)
        return await self.move_head(head)

    async def keep_up(self) -> None:
        """Begin again where the head now is, if it has moved: its owner clears the slots before that, and whoever
        waits in one of them would wait for ever."""
        try:
            stored = await self.grid.get(Map.HEADS, self.partition, HEAD)
        except GridError:
            return
        if stored is not None and stored != self.stored_head:
            await self.read()

    async def ring(self) -> None:
        """Write the head as it is: those who wait for it hear that, or find by themselves what there is to find."""
        stored = self.stored_head
        try:
            await self.grid.replace_if_same(Map.HEADS, self.partition, HEAD, stored, stored)
        except GridError:
            pass

    async def still_ours(self) -> bool:
        """Is the head still the one that we claimed? Not, if another has opened or the partition was lost."""
        if self._moving:
            return True  # the move itself will tell
        stored = self.stored_head
        if await self.grid.replace_if_same(Map.HEADS, self.partition, HEAD, stored, stored):
            return True
        return self._moving or stored != self.stored_head

    async def prove_ours(self) -> bool:
        """Is the head certainly ours? Then nobody else has done anything here until this was asked."""
        attempt = 0
        while True:
            stored = self.stored_head
            try:
                if await self.grid.replace_if_same(Map.HEADS, self.partition, HEAD, stored, stored):
                    return True
                if not self._moving and stored == self.stored_head:
                    return False
            except GridError:
                pass
            attempt += 1
            await self.pause(attempt)

    async def commit(self, record: Record) -> None:
        """Make this record the next of the log; `state` has it when this returns.

        Raises `TenureOver` if the slot is another's. Cancelling leaves the outcome open: drop the tenure.
        """
        record.after = self.state.last_id
        if not await self._append(record):
            raise TenureOver(f"partition {self.partition}: journal slot {self.slot} is another's")

    async def _append(self, record: Record) -> bool:
        stored = self.encode(record)
        if record.begun or record.edited:
            stored = marked(stored)
        if not await self.write_once(Map.JOURNAL, journal_key(self.slot), stored):
            return False
        self._add(record, stored)
        return True

    async def write_once(self, map: Map, key: bytes, value: bytes) -> bool:
        """True when this very value is there, with its backups; False when another is. Retries keep the bytes."""
        attempt = 0
        while True:
            try:
                there = await self._put(map, key, value)
                if there is None:
                    return True
                if not self._is_mine(there, value):
                    return False
                if await self.grid.replace_if_same(map, self.partition, key, value, value):
                    return True
            except GridError:
                pass
            attempt += 1
            await self.pause(attempt)

    async def _put(self, map: Map, key: bytes, value: bytes) -> bytes | None:
        return await self.grid.put_if_absent(map, self.partition, key, value)

    def _is_mine(self, there: bytes, value: bytes) -> bool:
        """An earlier try of ours that got through has our record's id, so the very same bytes."""
        return there == value

    async def move_head(self, head: Head) -> bool:
        """Compare-and-set from the head that we know. False: it is another's."""
        old, new = self.stored_head, self.encode(head)
        attempt, self._moving = 0, True
        try:
            while True:
                try:
                    if await self.grid.replace_if_same(Map.HEADS, self.partition, HEAD, old, new):
                        break
                    if await self.grid.replace_if_same(Map.HEADS, self.partition, HEAD, new, new):
                        break
                    return False
                except GridError:
                    attempt += 1
                    await self.pause(attempt)
            self.head, self.stored_head = head, new
            return True
        finally:
            self._moving = False

    async def pause(self, attempt: int) -> None:
        """Wait before trying again: longer each time, and never in step with others."""
        longest = min(self.settings.retry_pause_max_s, self.settings.retry_pause_s * 2 ** min(attempt - 1, 16))
        await trio.sleep(longest * (0.5 + self.random.random() / 2))

"""Putting a restored partition in the place of what was there, by the journal's own rules.

    fence: an opening behind all that has ever been in the journal ──► claim the head with it
        ──► image of the restored state ──► the head, of the new cluster

The journal is cleared up to its head, so what is there does not tell how far it has come: the head does, too. The claim
proves that it was the newest. Whoever owned the partition finds its next slot taken, its head not its own, and may
delete only what is below the fence; who opens it as of the old cluster finds a head that is not of it. So nothing of
before need be deleted for safety, and all of this may be done again after an interruption.
"""

import math
from collections.abc import Awaitable, Callable, Container
from typing import Any

import trio

from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.fences import restored_epoch
from tenure.scheduler.grid.port import GridError, Map, Unknown
from tenure.scheduler.image import Frozen
from tenure.scheduler.imaging import write_chunks
from tenure.scheduler.journal import Journal
from tenure.scheduler.keys import HEAD
from tenure.scheduler.snapshots.errors import NotRestorable
from tenure.scheduler.state import PartitionState
from tenure.scheduler.wire import Head, Record, RecordKind, decode, encode

__all__ = ["Founding"]

NODE = "restore"
DELETES_AT_ONCE = 32


class Founding(Journal):
    """The journal of one partition, begun anew."""

    def __init__(self, *arguments: Any, hold: Callable[[], Awaitable[None]], **options: Any) -> None:
        """`hold` waits until it is known that the cluster is still ours to write to (see `Claim`)."""
        super().__init__(*arguments, **options)
        self.hold = hold
        self.found_head = True
        """Was there a head, and could it be read, when we came?"""
        self.unknown_s = -math.inf
        """When the outcome of a deletion was unknown last."""

    async def fence(self, at_ms: int) -> None:
        """From now on, no earlier owner can commit, nor delete what comes behind this."""
        while True:
            there = await self._head_there()
            head = _head_of(there)
            self.found_head = head is not None
            slot, epoch = await self._end()
            if head is not None:
                slot, epoch = max(slot, head.first), max(epoch, head.image.epoch if head.image is not None else 0)
            self.slot, self.state = slot, PartitionState()
            epoch = max(epoch, restored_epoch(at_ms))
            opening = Record(self.new_id(), "", RecordKind.OPENING, epoch + 1, NODE, at_ms)
            await self.hold()
            if await self._append(opening) and await self._claim_there(there, head, opening.id):
                return

    async def _head_there(self) -> bytes | None:
        attempt = 0
        while True:
            try:
                return await self.grid.get(Map.HEADS, self.partition, HEAD)
            except GridError:
                attempt += 1
                await self.pause(attempt)

    async def _claim_there(self, there: bytes | None, head: Head | None, opening: str) -> bool:
        """False: that is not the head any more; an owner of before has moved it, or the read was out of date."""
        head = head or Head(self.formation, 0, self.slot)  # for one that is lost or damaged
        new, attempt = encode(Head(head.formation, head.incarnation, head.first, head.image, opening)), 0
        while True:
            await self.hold()
            try:
                if there is None:
                    is_ours = await self.grid.put_if_absent(Map.HEADS, self.partition, HEAD, new) is None
                else:
                    is_ours = await self.grid.replace_if_same(Map.HEADS, self.partition, HEAD, there, new)
                return is_ours or await self.grid.replace_if_same(Map.HEADS, self.partition, HEAD, new, new)
            except GridError:
                attempt += 1
                await self.pause(attempt)

    async def _end(self) -> tuple[int, int]:
        """The slot behind all that is in the journal, and the last epoch."""
        attempt = 0
        while True:
            slot = epoch = 0
            try:
                async for page in self.grid.scan(Map.JOURNAL, self.partition):
                    for entry in page:
                        if len(entry.key) == 8:
                            slot = max(slot, int.from_bytes(entry.key, "big") + 1)
                            epoch = max(epoch, _epoch_of(entry.value))
                return slot, epoch
            except GridError:
                attempt += 1
                await self.pause(attempt)

    async def found(self, state: PartitionState, formation: str, incarnation: int) -> None:
        """Let this be the state. Call `fence` before."""
        fenced = self.state
        state.epoch, state.owner, state.last_id = fenced.epoch, fenced.owner, fenced.last_id
        state.next_slot, state.closed_for = fenced.next_slot, ""
        # One who opened after our fence has the same epoch, and may write images too.
        ref = await write_chunks(self, Frozen(state), state.epoch, self.random.getrandbits(31))
        await self._take_head(Head(formation, incarnation, state.next_slot, ref, state.last_id))

    async def _take_head(self, head: Head) -> None:
        new, attempt = encode(head), 0
        while True:
            await self.hold()
            try:
                there = await self.grid.put_if_absent(Map.HEADS, self.partition, HEAD, new)
                if (known := _head_of(there)) is not None and known.incarnation > head.incarnation:
                    raise NotRestorable("another has restored here meanwhile, as this one was silent for long")
                if there is None or await self.grid.replace_if_same(Map.HEADS, self.partition, HEAD, there, new):
                    return
            except GridError:
                attempt += 1
                await self.pause(attempt)

    async def clear(self, map: Map, kept: Container[bytes] = ()) -> None:
        """Delete what was there, but for the keys that are going to be written anew."""
        keys: list[bytes] = []
        attempt, read = 0, False
        while not read:
            try:
                async for page in self.grid.scan(map, self.partition, page=500):
                    keys += (entry.key for entry in page if entry.key not in kept)
                read = True
            except GridError:
                attempt += 1
                await self.pause(attempt)
        limiter = trio.Semaphore(DELETES_AT_ONCE)
        async with trio.open_nursery() as nursery:
            for key in keys:
                await limiter.acquire()
                nursery.start_soon(self._delete, map, key, limiter)

    async def _delete(self, map: Map, key: bytes, limiter: trio.Semaphore) -> None:
        attempt = 0
        try:
            while True:
                await self.hold()
                try:
                    await self.grid.delete(map, self.partition, key)
                    return
                except GridError as error:
                    if isinstance(error, Unknown):
                        self.unknown_s = trio.current_time()
                    attempt += 1
                    await self.pause(attempt)
        finally:
            limiter.release()


def _head_of(stored: bytes | None) -> Head | None:
    try:
        return None if stored is None else decode(stored, Head)
    except (Undecodable, UnreadableFormat):
        return None


def _epoch_of(stored: bytes) -> int:
    try:
        return decode(stored, Record).epoch
    except (Undecodable, UnreadableFormat):
        return 0

"""Forgetting the lanes of clients that are gone, so that cursors don't grow for ever.

A lane is forgotten when nothing came for its lifetime by this tenure's own clock, its birth is as long
ago by the wall clock, and `put_if_absent` has proved that its next slot is empty (a read proves nothing).
A journaled watermark makes forgotten lanes dead, not new; it is published, and clients begin their lanes
above it.
"""

from typing import TYPE_CHECKING

import trio

from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.inlanes import PROOF
from tenure.scheduler.keys import WATERMARK, is_partition_sender, slot_key
from tenure.scheduler.wire import encode

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Forgetting"]

AT_ONCE_MAX = 100


class Forgetting:
    """One tenure's memory of when it last heard of each client."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure = tenure
        self._begun_s = trio.current_time()
        self._heard_s: dict[bytes, float] = {}
        self._published = 0

    def heard(self, sender: bytes) -> None:
        """A slot of this sender was taken."""
        self._heard_s[sender] = trio.current_time()

    async def sweep(self) -> None:
        """Forget what has been silent for long enough. Raises `GridError`."""
        for sender, (lane, n) in self._silent():
            if await self._prove_empty(slot_key(sender, lane, n)):
                self._forget(sender, (lane, n))
        await self._publish()

    def _silent(self) -> list[tuple[bytes, tuple[int, int]]]:
        lifetime_s = self.tenure.settings.lane_lifetime_s
        now_s, now_ms = trio.current_time(), self.tenure.host.now_ms()
        if now_s - self._begun_s < lifetime_s:
            return []
        silent = [
            (sender, cursor)
            for sender, cursor in self.tenure.state.cursors.items()
            if not is_partition_sender(sender)
            and now_s - self._heard_s.get(sender, self._begun_s) >= lifetime_s
            and cursor[0] < now_ms - lifetime_s * 1000
        ]
        return silent[:AT_ONCE_MAX]

    async def _prove_empty(self, key: bytes) -> bool:
        # What we put there is no batch, on purpose, and lies below the watermark once it counts.
        grid, partition = self.tenure.host.grid, self.tenure.partition
        there = await grid.put_if_absent(Map.INBOX, partition, key, PROOF)
        # Ours of an earlier try, or a former tenure's; such an answer may be out of date, a conditional write is not.
        return there is None or (there == PROOF and await grid.replace_if_same(Map.INBOX, partition, key, PROOF, PROOF))

    def _forget(self, sender: bytes, cursor: tuple[int, int]) -> None:
        tenure = self.tenure
        if tenure.inlanes.cursors.get(sender) != cursor or sender in tenure.inlanes.waiting:
            return
        tenure.inlanes.forget(sender)
        draft = tenure.turns.draft
        draft.cursors.pop(sender, None)
        draft.forgotten.append(sender)
        draft.watermark = max(draft.watermark, cursor[0])
        draft.consumed.append(slot_key(sender, *cursor))
        self._heard_s.pop(sender, None)
        tenure.want_commit()

    async def _publish(self) -> None:
        watermark = self.tenure.state.watermark
        if watermark > self._published:
            try:
                await self.tenure.host.grid.set(Map.HEADS, self.tenure.partition, WATERMARK, encode(watermark))
            except GridError:
                return
            self._published = watermark

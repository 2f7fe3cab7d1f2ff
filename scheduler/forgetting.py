"""Forgetting the lanes of clients that are gone, so that cursors don't grow for ever.

    silent ──► a watermark is announced ──► patience, then a scan ──► the next slot proved empty ──► journaled

A lane is silent when nothing came for its lifetime by this tenure's own clock. It is forgotten when `put_if_absent`
has proved that its next slot is empty (a read proves nothing). A journaled watermark makes forgotten lanes dead, not
new.

It would also kill the young lanes of others: of a client whose clock is behind, or of all, where it was the clock of
the one that is gone that was ahead. So it is announced first, and clients begin above it, whatever their clocks say.
Who began before that can be told 'stored' for half a lifetime by its own clock; then a scan hears all that was stored,
and as long as such a lane waits to be taken, nothing is forgotten. The rules are those of
`tests/models/lanes_model.py`; no wall clock counts for them.
"""

from typing import TYPE_CHECKING

import trio

from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.inlanes import PROOF
from tenure.scheduler.keys import is_partition_sender, slot_key
from tenure.scheduler.pace import run_clock
from tenure.scheduler.watermark import announce

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Forgetting"]

AT_ONCE_MAX = 2000
"""Lanes that one sweep forgets. Where each publish is a client's of its own, this keeps up with them: a sweep comes ten
seconds after the last at most, so with 200 a second for each partition."""
PROOFS_AT_ONCE = 16
Cursor = tuple[int, int]


class Forgetting:
    """One tenure's memory of when it last heard of each client."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure = tenure
        self._clock = run_clock()
        self._begun_s = self._clock()
        self._heard_s: dict[bytes, float] = {}
        self._announced, self._announced_s = 0, 0.0

    def heard(self, sender: bytes) -> None:
        """A slot of this sender was taken."""
        self._heard_s[sender] = self._clock()

    async def sweep(self) -> None:
        """Forget what has been silent for long enough. Raises `GridError`."""
        silent = self._silent()
        dead = [(sender, cursor) for sender, cursor in silent if cursor[0] <= self._announced]
        if not dead:
            await self._announce(max([self.tenure.state.watermark, *(lane for _, (lane, _) in silent)]))
        elif trio.current_time() >= self._announced_s + self.tenure.settings.lane_lifetime_s:
            await self._forget_all(dead)

    async def _announce(self, watermark: int) -> None:
        if watermark > self._announced:
            grid, partition = self.tenure.host.grid, self.tenure.partition
            # None: the next sweep tries again.
            self._announced = await announce(grid, partition, watermark) or 0
            self._announced_s = trio.current_time()

    def _silent(self) -> list[tuple[bytes, Cursor]]:
        lifetime_s = self.tenure.settings.lane_lifetime_s
        now_s, waiting = trio.current_time(), self.tenure.inlanes.waiting
        if now_s - self._begun_s < lifetime_s:
            return []
        silent = [
            (sender, cursor)
            for sender, cursor in self.tenure.state.cursors.items()
            if not is_partition_sender(sender)
            and sender not in waiting  # which may be for long: its job is full
            and now_s - self._heard_s.get(sender, self._begun_s) >= lifetime_s
        ]
        return silent[:AT_ONCE_MAX]

    async def _forget_all(self, dead: list[tuple[bytes, Cursor]]) -> None:
        tenure = self.tenure
        async for page in tenure.host.grid.scan(Map.INBOX, tenure.partition):
            for entry in page:
                tenure.offer_slot(entry.key, entry.value)
        if tenure.inlanes.is_beginning_below(self._announced):
            return
        limiter = trio.CapacityLimiter(PROOFS_AT_ONCE)
        async with trio.open_nursery() as nursery:
            for sender, cursor in dead:
                nursery.start_soon(self._forget_if_empty, sender, cursor, limiter)

    async def _forget_if_empty(self, sender: bytes, cursor: Cursor, limiter: trio.CapacityLimiter) -> None:
        async with limiter:
            try:
                is_empty = await self._prove_empty(slot_key(sender, *cursor))
            except GridError:
                return  # with the next sweep, then
        if is_empty:
            self._forget(sender, cursor)

    async def _prove_empty(self, key: bytes) -> bool:
        # What we put there is no batch, on purpose, and lies below the watermark once it counts.
        grid, partition = self.tenure.host.grid, self.tenure.partition
        there = await grid.put_if_absent(Map.INBOX, partition, key, PROOF)
        # Ours of an earlier try, or a former tenure's; such an answer may be out of date, a conditional write is not.
        return there is None or (there == PROOF and await grid.replace_if_same(Map.INBOX, partition, key, PROOF, PROOF))

    def _forget(self, sender: bytes, cursor: Cursor) -> None:
        tenure = self.tenure
        if tenure.inlanes.cursors.get(sender) != cursor or sender in tenure.inlanes.waiting:
            return
        tenure.inlanes.forget(sender)
        draft = tenure.turns.draft
        draft.forget(sender, cursor)
        draft.consumed.append(slot_key(sender, *cursor))
        self._heard_s.pop(sender, None)
        tenure.want_commit()

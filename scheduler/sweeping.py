"""The slow look at what events should have told: slots nobody told of, slots to clear, whether all is still ours.

A sweep that finds such a slot is soon followed by another. Where one after the other finds none, they become rare:
on an idle node with hundreds of partitions they are all that there is to do, and on a busy one there is enough to do.
"""

from typing import TYPE_CHECKING

import trio

from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.journal import TenureOver

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Sweeping"]

SWEEPS_A_CLEARING, FIRST_CLEARING = 30, 6
"""What deletions left behind is looked for so rarely, and first when a handoff is well over."""
TOLD_WITHIN_S = 0.5
"""A slot that was found may have been overtaking its event: that has so long to arrive."""
UNHEARD_S = 0.3
"""The pause where no event can come, because the data's member is leaving."""
CALMER, CALM = 1.5, 5.0
"""By how much longer each pause is than the one before, and how many times `sweep_s` it is at most."""


class Sweeping:
    """The sweeps of one tenure."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.settings = tenure, tenure.settings
        self._soon = trio.Event()
        self._calm = 1.0
        self._untold: set[bytes] = set()
        """What the last sweep has found, and no event has told of since."""

    def told(self, key: bytes) -> None:
        """An event told of this slot."""
        if self._untold:
            self._untold.discard(key)

    def soon(self) -> None:
        """Events may have been lost, or the partition itself: look now, and again before long."""
        self._calm = 1.0
        self._soon.set()

    async def run(self) -> None:
        """Find slots that no event told of; delete what lies below the cursors; later, the journal's remains."""
        tenure, sweeps = self.tenure, 0
        pause_s = self._pause_s()  # the first one has been
        due_s = trio.current_time() + pause_s
        while True:
            with trio.move_on_after(min(UNHEARD_S, pause_s) if self._is_unheard() else pause_s):
                await self._soon.wait()
            self._soon = trio.Event()
            try:
                await self.inbox()
                if self._is_unheard() and trio.current_time() < due_s:
                    continue  # looked at so often for what is urgent alone
                tenure.dead_letters.sweep()
                tenure.holding.sweep()
                if tenure.remembering.is_full:
                    await tenure.remembering.expire()
                await tenure.forgetting.sweep()
                if not await tenure.journal.still_ours():
                    raise TenureOver(f"partition {tenure.partition}: its head is no longer ours")
                sweeps += 1
                if sweeps % SWEEPS_A_CLEARING == FIRST_CLEARING:
                    await tenure.images.sweep()
                    await tenure.remembering.expire()
                pause_s = await self._next_pause_s()
                due_s = trio.current_time() + pause_s
            except GridError:
                pause_s = min(self._pause_s(), self.settings.retry_pause_max_s)

    async def _next_pause_s(self) -> float:
        may_come = self._untold and not self._is_unheard()
        waited_s = min(TOLD_WITHIN_S, self.settings.sweep_s / 4) if may_come else 0.0
        if waited_s:
            with trio.move_on_after(waited_s):
                await self._soon.wait()
        self._calm = 1.0 if self._untold else min(CALM, CALMER * self._calm)
        return max(0.0, self._pause_s() - waited_s)

    def _is_unheard(self) -> bool:
        return self.tenure.host.grid.ownership().is_unheard(self.tenure.partition)

    def _pause_s(self) -> float:
        return self.settings.sweep_s * self._calm * (0.5 + self.tenure.host.random.random())

    async def inbox(self) -> None:
        """Offer all that is there, delete what has been consumed."""
        tenure = self.tenure
        self._untold.clear()
        async for page in tenure.host.grid.scan(Map.INBOX, tenure.partition):
            for entry in page:
                known = tenure.inlanes.is_waiting(entry.key)
                if tenure.offer_slot(entry.key, entry.value) and not known:
                    self._untold.add(entry.key)
            # Only what a *committed* cursor has passed: the turns of what was merely taken may yet be lost.
            passed = [entry.key for entry in page if tenure.is_passed(entry.key)]
            tenure.host.grid.discard(Map.INBOX, tenure.partition, passed)

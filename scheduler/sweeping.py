"""The slow look at what events should have told: slots nobody told of, slots to clear, whether all is still ours.

A sweep that finds such a slot is soon followed by another. Where one after the other finds none, they become rare:
on an idle node with hundreds of partitions they are all that there is to do.
"""

from typing import TYPE_CHECKING

import trio

from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.journal import TenureOver

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Sweeping"]

SWEEPS_A_CLEARING = 30
"""What deletions left behind is looked for in the second sweep (not amid a handoff), and then this rarely."""
CALMER, CALM = 1.5, 5.0
"""By how much longer each pause is than the one before, and how many times `sweep_s` it is at most."""


class Sweeping:
    """The sweeps of one tenure."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.settings = tenure, tenure.settings
        self._soon = trio.Event()
        self._calm = 1.0

    def soon(self) -> None:
        """Events may have been lost, or the partition itself: look now, and again before long."""
        self._calm = 1.0
        self._soon.set()

    async def run(self) -> None:
        """Find slots that no event told of; delete what lies below the cursors; later, the journal's remains."""
        tenure, sweeps = self.tenure, 0
        pause_s = self._pause_s()  # the first one has been
        while True:
            with trio.move_on_after(pause_s):
                await self._soon.wait()
            self._soon = trio.Event()
            pause_s = self._pause_s()
            try:
                if await self.inbox():
                    self._calm = 1.0
                    pause_s = self._pause_s()
                else:
                    self._calm = min(CALM, CALMER * self._calm)
                await tenure.forgetting.sweep()
                if not await tenure.journal.still_ours():
                    raise TenureOver(f"partition {tenure.partition}: its head is no longer ours")
                sweeps += 1
                if sweeps % SWEEPS_A_CLEARING == 2:
                    await tenure.images.sweep()
                    tenure.state.forget_expired(tenure.host.now_ms())
            except GridError:
                pause_s = min(pause_s, self.settings.retry_pause_max_s)

    def _pause_s(self) -> float:
        return self.settings.sweep_s * self._calm * (0.5 + self.tenure.host.random.random())

    async def inbox(self) -> bool:
        """Offer all that is there, delete what has been consumed. Was there anything that no event has told of?"""
        tenure, found = self.tenure, False
        async for page in tenure.host.grid.scan(Map.INBOX, tenure.partition):
            for entry in page:
                known = tenure.inlanes.is_waiting(entry.key)
                found |= tenure.offer_slot(entry.key, entry.value) and not known
            # Only what a *committed* cursor has passed: the turns of what was merely taken may yet be lost.
            passed = [entry.key for entry in page if tenure.is_passed(entry.key)]
            tenure.host.grid.discard(Map.INBOX, tenure.partition, passed)
        return found

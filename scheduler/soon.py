"""Waits that mostly end soon: they share one timer, where a cancel scope for each would cost more than the wait.

wait ──► the signal comes ──► go on
  └──► it is late: whoever waits is woken, and sees to its deadline by itself
"""

from collections import deque

import trio

from tenure.scheduler.pace import run_clock

__all__ = ["Signal", "Soon"]


class Signal:
    """Given once, to one who waits."""

    __slots__ = ("_event", "is_given")

    def __init__(self) -> None:
        self.is_given = False
        self._event = trio.Event()

    def give(self) -> None:
        """Let go on whoever waits."""
        self.is_given = True
        self._event.set()

    def wake(self) -> None:
        """It is late."""
        self._event.set()

    async def wait(self) -> bool:
        """Returns whether it was given."""
        await self._event.wait()
        if not self.is_given:
            self._event = trio.Event()
        return self.is_given


class Soon:
    """The timer of those who wait."""

    def __init__(self, nursery: trio.Nursery, late_s: float) -> None:
        """A signal that has not come for `late_s` is late."""
        self.late_s = late_s
        self._nursery, self._clock = nursery, run_clock()
        self._waits: deque[tuple[float, Signal]] = deque()
        """When each is late. Those that have come go when it is their time."""
        self._is_at_work = False

    async def comes(self, signal: Signal) -> bool:
        """Wait for it. False: it is late."""
        if not signal.is_given:
            self._waits.append((self._clock() + self.late_s, signal))
            if not self._is_at_work:
                self._is_at_work = True
                self._nursery.start_soon(self._wake_late)
        return await signal.wait()

    async def _wake_late(self) -> None:
        try:
            while self._waits:
                late_s, signal = self._waits[0]
                if not signal.is_given:
                    if self._clock() < late_s:
                        await trio.sleep_until(late_s)
                        continue
                    signal.wake()
                self._waits.popleft()
        finally:
            self._is_at_work = False

"""What is due later in a memory grid, done in order of time by one task of trio's.

Nobody opens a nursery for an embedded grid, so this is a system task: it lives until the trio run ends.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

import trio

__all__ = ["Agenda"]

Act = Callable[[], None]


class Agenda:
    """Runs acts at their time, in the order in which they were entered where times are equal."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int, Act]] = []
        self._soon: list[Act] = []
        self._serial = 0
        self._task: trio.lowlevel.Task | None = None
        self._nap: trio.CancelScope | None = None
        self._asleep = False

    def soon(self, act: Act) -> None:
        """Do it in the next scheduling tick: what many writers do in one tick can be told of at once."""
        self._soon.append(act)
        self._wake()

    def at(self, time: float, act: Act) -> None:
        """Do it when trio's clock shows `time`."""
        self._serial += 1
        heappush(self._later, (time, self._serial, act))
        if self._nap is not None:
            self._nap.deadline = min(self._nap.deadline, time)
        else:
            self._wake()

    def after(self, delay_s: float, act: Act) -> None:
        """Do it `delay_s` from now."""
        self.at(trio.current_time() + delay_s, act)

    async def sleep_until(self, time: float) -> None:
        """Sleep on this agenda: all who sleep until the same moment cost one wake-up of the clock."""
        task = trio.lowlevel.current_task()
        asleep = True

        def wake() -> None:
            nonlocal asleep
            if asleep:
                asleep = False
                trio.lowlevel.reschedule(task)

        def abort(_: object) -> trio.lowlevel.Abort:
            nonlocal asleep
            asleep = False
            return trio.lowlevel.Abort.SUCCEEDED

        self.at(time, wake)
        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake(self) -> None:
        if self._task is None:
            self._task = trio.lowlevel.spawn_system_task(self._run, name="memory grid agenda")
        elif self._asleep:
            self._asleep = False
            trio.lowlevel.reschedule(self._task)

    async def _run(self) -> None:
        while True:
            acts, self._soon = self._soon, []
            now = trio.current_time()
            while self._later and self._later[0][0] <= now:
                acts.append(heappop(self._later)[2])
            for act in acts:
                act()
            if self._soon:
                # One tick for each round: an act that enters acts must not starve the tasks they are for.
                await trio.lowlevel.cancel_shielded_checkpoint()
            else:
                await self._sleep()

    async def _sleep(self) -> None:
        def abort(_: object) -> trio.lowlevel.Abort:
            self._asleep = False
            return trio.lowlevel.Abort.SUCCEEDED

        with trio.CancelScope(deadline=self._later[0][0] if self._later else inf) as self._nap:
            self._asleep = True
            await trio.lowlevel.wait_task_rescheduled(abort)
        self._nap = None

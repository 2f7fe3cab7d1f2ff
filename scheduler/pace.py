"""A node's work in slices: between two of them its loop comes round, and heartbeats, answers and timers are on time.

All partitions of a node share a slice. Whoever finds it used up lets the loop come round once; what a pass of its own
has not come to waits for the next pass. Time is trio's: in virtual time handlers take none, and nobody ever waits.
"""

import time
from collections.abc import Callable

import trio

__all__ = ["SLICE_S", "Pace", "run_clock"]

SLICE_S = 0.1
LEAST_S = 0.005
"""With less left of a slice, nobody begins: there is always time for something to be done."""
USED_UP_S = SLICE_S - LEAST_S


class Pace:
    """One node's."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.clock = clock or _quickest()
        """Read before each turn."""
        self.ends_s = 0.0
        """When the slice that has begun is used up."""
        self._began_s = self._spent_s = 0.0
        self._rounds = 0

    async def begin(self) -> None:
        """Wait for a slice with enough left of it, and begin to use it. Call `end` before anything is awaited."""
        while not self.begins():
            rounds = self._rounds
            await trio.lowlevel.checkpoint()
            if rounds == self._rounds:  # the first to come back begins the next one
                self._rounds, self._spent_s = rounds + 1, 0.0

    def begins(self) -> bool:
        """The same where nobody has to wait. False: the slice is used up, and nothing has begun."""
        if self._spent_s > USED_UP_S:
            return False
        self._began_s = began_s = self.clock()
        self.ends_s = began_s + SLICE_S - self._spent_s
        return True

    def is_over(self) -> bool:
        """Is the slice used up?"""
        return self.clock() >= self.ends_s

    def end(self) -> None:
        """The loop may come round now."""
        self._spent_s += self.clock() - self._began_s

    async def pause(self) -> None:
        """In the middle of long work that is no partition's pass: let the loop come round."""
        await trio.lowlevel.checkpoint()


def run_clock() -> Callable[[], float]:
    """This run's clock itself: `trio.current_time` looks it up each time."""
    try:
        return trio.lowlevel.current_clock().current_time
    except RuntimeError:
        return trio.current_time  # nothing runs yet


def _quickest() -> Callable[[], float]:
    """What the run's clock goes by, where that is the system's (trio's, which it does not export): only differences
    count here."""
    clock = run_clock()
    is_systems = type(getattr(clock, "__self__", None)).__name__ == "SystemClock"
    return time.perf_counter if is_systems else clock

"""What time it is for certain: what was promised to be kept for so long is not thrown away by one clock that is ahead.

A node compares its clock with those that the others tell with their hearts. If it is ahead of most of them, what it
may forget (dead letters, ids of messages) goes by theirs. Of two that differ nobody knows which is right: then by the
one that is behind. Nothing else rests on that; timers ring by the owner's own clock.
"""

from collections.abc import Callable, Iterable

__all__ = ["APART_MS", "Clocks"]

APART_MS = 60_000
"""Clocks that differ by less agree: what others tell is as old as their last beat."""


class Clocks:
    """Those that one node knows of."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.ahead_ms = 0
        """By so much ours is ahead of most others."""

    def compare(self, others_ms: Iterable[int]) -> None:
        """The others' clocks show these times now, or have just done so."""
        now_ms = self._now_ms()
        times = sorted([now_ms, *others_ms])
        ahead_ms = now_ms - times[(len(times) - 1) // 2]
        self.ahead_ms = ahead_ms if ahead_ms > APART_MS else 0

    def past_ms(self) -> int:
        """It is this time, or later."""
        return self._now_ms() - self.ahead_ms

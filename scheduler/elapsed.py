"""Elapsed time from which nothing is missing: trio's clock may stand still while a machine sleeps."""

from collections.abc import Callable

from tenure.scheduler.pace import run_clock

__all__ = ["Elapsed"]

SLEPT_S_MIN = 1.0
"""Less than this is the wall clock being adjusted."""


class Elapsed:
    """Trio's clock, and on top of it whatever the wall clock has leapt ahead between two looks."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._clock, self._now_ms = run_clock(), now_ms
        self._slept_s = 0.0
        self._awake_s, self._wall_s = self._clock(), now_ms() / 1000

    def now_s(self) -> float:
        """It never goes back, and never lags behind either clock."""
        awake_s, wall_s = self._clock(), self._now_ms() / 1000
        slept_s = (wall_s - self._wall_s) - (awake_s - self._awake_s)
        if slept_s > SLEPT_S_MIN:
            self._slept_s += slept_s
        self._awake_s, self._wall_s = awake_s, wall_s
        return awake_s + self._slept_s

"""What the log says of attempts that failed: each with its traceback, but never so many that the log drowns in them."""

from collections.abc import Callable

import trio

__all__ = ["AT_ONCE_MAX", "EVERY_S", "FailureLog"]

AT_ONCE_MAX, EVERY_S = 20, 3.0
"""So many at once are logged whole, and one more every so many seconds; of the others there is a count."""


class FailureLog:
    """One node's: a bucket of attempts that may be logged."""

    def __init__(self, write: Callable[[str, str], None]) -> None:
        """`write` takes a sentence, and a traceback."""
        self._write = write
        self._left, self._since_s = float(AT_ONCE_MAX), 0.0
        self._untold = 0

    def tell(self, text: str, traceback: str) -> None:
        """An attempt has failed."""
        now_s = trio.current_time()
        self._left = min(float(AT_ONCE_MAX), self._left + (now_s - self._since_s) / EVERY_S)
        self._since_s = now_s
        if self._left < 1:
            self._untold += 1
            return
        self._left -= 1
        if self._untold:
            text = f"{text} ({self._untold} more failed attempts before this one were not logged: too many at once)"
            self._untold = 0
        self._write(text, traceback)

"""Requests leave together: those of one pass of trio's loop, at its end, in one system call for each connection.

    tasks run ──> requests are queued ──> before trio waits: flush ──> wait
                      └── much is queued: flush

Another thread would have to be woken, and would wait for Python's lock for as long as tasks run.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

__all__ = ["Writing"]

_log = logging.getLogger(__name__)


class Writing(trio.abc.Instrument):
    """Which connections are to be flushed. In the trio thread."""

    def __init__(self) -> None:
        self._filled: dict[Any, None] = {}

    @contextmanager
    def at_ends(self) -> Iterator[None]:
        """Meanwhile what is filled is flushed at the end of each pass."""
        trio.lowlevel.add_instrument(self)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(self)

    def fill(self, connection: Any) -> None:
        """Something is queued for this connection."""
        self._filled[connection] = None

    def before_io_wait(self, timeout: float) -> None:
        """Called by trio, which drops an instrument that raises."""
        if self._filled:
            filled, self._filled = self._filled, {}
            for connection in filled:
                try:
                    connection.flush()
                except Exception:  # noqa: BLE001  # the next pass must be flushed, too
                    _log.exception("What is queued for a member could not be sent")

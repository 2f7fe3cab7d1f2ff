"""From the client's threads to trio: one queue, and one hop for all that came in the meantime.

A hop for each answer would cost more than the answer.

    client's threads:   put(x) put(y) put(z)          put(...)
                          |                             |
                       one run_sync_soon             one run_sync_soon
    trio:                 └──> x.arrive() y.arrive() z.arrive()
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio

__all__ = ["Arrival", "Handover"]

_log = logging.getLogger(__name__)


class Arrival(Protocol):
    """Something from outside that trio is to be told of."""

    def arrive(self) -> None:
        """Called once in the trio thread."""


class Handover:
    """A funnel into the trio thread in which it was made."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._queue: deque[Arrival] = deque()
        self._scheduled = False

    def put(self, arrival: Arrival) -> None:
        """From any thread; never blocks, never raises."""
        self._queue.append(arrival)
        # Both orders are safe: trio clears the flag before it empties the queue.
        if not self._scheduled:
            self._scheduled = True
            try:
                self._token.run_sync_soon(self._drain)
            except trio.RunFinishedError:
                self._queue.clear()  # nobody is left to be told

    def at_once(self, put: Callable[[], bool]) -> bool:
        """In the trio thread: what is put by this, or meanwhile, arrives at its end. Returns what it returns."""
        self._scheduled = True  # by others too: nobody need wake us
        try:
            return put()
        finally:
            self._drain()

    def _drain(self) -> None:
        self._scheduled = False
        queue = self._queue
        while queue:
            arrival = queue.popleft()
            try:
                arrival.arrive()
            except Exception:  # noqa: BLE001  # raised here it would end the whole program
                _log.exception("An arrival from the grid could not be delivered")

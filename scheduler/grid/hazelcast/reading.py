"""Connections read in the trio thread: an answer that wakes no other thread on its way comes sooner, and costs less.

    socket readable ──> receive ──> whole messages ──> calls end, events are heard ──> wait again

What the client itself wants to know (members, partitions, its heartbeats) comes the same way. If the connection breaks,
it is the reactor's again, which sees to the rest.
"""

import os
from typing import Any

import trio

from tenure.scheduler.grid.hazelcast.handover import Handover
from tenure.scheduler.grid.hazelcast.writing import Writing

__all__ = ["Reading"]


class Reading:
    """Which connections are read here. In the trio thread."""

    def __init__(self, handover: Handover, writing: Writing) -> None:
        self._handover, self._writing = handover, writing
        self._adopted: set[Any] = set()
        self._wanted: list[Any] = []
        self._news = trio.Event()

    def follow(self, connections: list[Any]) -> None:
        """The connections as they are now."""
        self._wanted = connections
        self._news.set()

    async def run(self) -> None:
        """Read those that there are, until cancelled; then they are the reactor's again."""
        async with trio.open_nursery() as nursery:
            while True:
                for connection in self._wanted:
                    if connection.live and connection not in self._adopted:
                        self._adopted.add(connection)
                        nursery.start_soon(self._read, connection)
                self._news = trio.Event()
                await self._news.wait()

    async def _read(self, connection: Any) -> None:
        try:
            # Of our own, as another thread may close the connection, and its number may soon be another's.
            descriptor = connection.adopt(self._writing.fill)
        except OSError:
            self._adopted.discard(connection)
            return
        try:
            while connection.live:
                await trio.lowlevel.wait_readable(descriptor)
                if not self._handover.at_once(connection.receive):
                    return
        finally:
            connection.disown()
            os.close(descriptor)
            self._adopted.discard(connection)

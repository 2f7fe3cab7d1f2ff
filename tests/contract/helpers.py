"""What the tests of this folder say often."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from tenure.scheduler.grid.port import Entry, EntryEvent, Grid, Map, Unknown

T = TypeVar("T")


async def eventually(holds: Callable[[], object], within_s: float) -> None:
    """Wait for what must come true by itself."""
    with trio.move_on_after(within_s):
        while not holds():  # noqa: ASYNC110 (what it waits for is on the other side of a port, and sets no event)
            await trio.sleep(0.02)
    assert holds(), "did not come true in time"


async def surely(call: Callable[[], Awaitable[T]], within_s: float) -> T:
    """Repeat a call until its outcome is known, as the grid gets over a fault."""
    with trio.fail_after(within_s):
        while True:
            try:
                return await call()
            except Unknown:
                await trio.sleep(0.05)


def primary_partitions(grid: Grid, member: str) -> list[int]:
    """The partitions whose primary is that member."""
    return [partition for partition, primary in enumerate(grid.ownership().primaries) if primary == member]


async def scanned(grid: Grid, map: Map, partition: int, prefix: bytes, *, page: int = 100) -> list[Entry]:
    """All entries of a partition whose keys begin with `prefix`."""
    pages = [entries async for entries in grid.scan(map, partition, page=page)]
    return [entry for entries in pages for entry in entries if entry.key.startswith(prefix)]


class Heard:
    """A listener that keeps what it was told of keys with a prefix."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self.events: list[EntryEvent] = []

    def __call__(self, events: list[EntryEvent]) -> None:
        self.events += [event for event in events if event.key.startswith(self._prefix)]

    @property
    def values(self) -> list[bytes | None]:
        return [event.value for event in self.events]

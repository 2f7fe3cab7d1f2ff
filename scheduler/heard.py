"""What comes to a partition while it is opened: its first sweep runs beside the opening, and hints are kept for it."""

from collections.abc import Awaitable, Callable

from tenure.scheduler.grid.port import Grid, GridError, Map

__all__ = ["Heard"]


class Heard:
    """Slots and definitions, for a tenure that is about to begin."""

    def __init__(self) -> None:
        self.slots: dict[bytes, bytes] = {}
        self.definitions: dict[str, bytes] = {}
        self.again = False
        """Events may have been lost since the sweep: the tenure that begins with this must sweep soon."""

    async def sweep(self, grid: Grid, partition: int, pause: Callable[[int], Awaitable[None]]) -> None:
        """Find the slots that are there; those that come from now on are heard of."""
        attempt = 0
        while True:
            try:
                async for page in grid.scan(Map.INBOX, partition):
                    self.slots.update((entry.key, entry.value) for entry in page)
                return
            except GridError:
                attempt += 1
                await pause(attempt)

"""While partitions are being opened, those that are served already step aside: a few in each pass of trio's loop.

    pass:  answers and events come in ──> openings go on ──> a few others take, run, commit ──> pass: …

An opening is a chain of calls, and each waits until the loop comes round. Under load a pass serves a hundred
partitions; then what is opened stands still for many such passes. Those that step aside lose little by it: what comes
meanwhile goes into the same record.
"""

from typing import NoReturn

import trio

__all__ = ["Precedence"]

SERVED_IN_A_PASS = 16


class Precedence:
    """One node's. Nothing here waits for the grid: no partition can hold up another."""

    def __init__(self) -> None:
        self.first: set[int] = set()
        """The partitions that are being opened, or are about to be."""
        self._waiting = trio.lowlevel.ParkingLot()
        self._awaited = trio.Event()

    def goes_first(self, partition: int) -> None:
        """From now on, until it has been served once."""
        self.first.add(partition)

    def served(self, partition: int) -> None:
        """It is one of the others now; or its opening has ended in another way."""
        self.first.discard(partition)

    async def let_pass(self) -> None:
        """Step aside until it is this partition's turn."""
        self._awaited.set()
        await self._waiting.park()

    async def run(self) -> NoReturn:
        """Let those who wait go on, as they came."""
        while True:
            await self._awaited.wait()
            while self._waiting:
                self._waiting.unpark(count=SERVED_IN_A_PASS if self.first else len(self._waiting))
                await trio.lowlevel.checkpoint()
            self._awaited = trio.Event()

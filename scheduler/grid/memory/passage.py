"""The way of a call: the time that it takes, where it ends, and what lands without its caller."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import trio
from trio.lowlevel import checkpoint

from tenure.scheduler.grid.memory.faults import Fault
from tenure.scheduler.grid.memory.shard import Shard
from tenure.scheduler.grid.memory.side import Side
from tenure.scheduler.grid.port import Unknown

if TYPE_CHECKING:
    from tenure.scheduler.grid.memory.faulty_connection import FaultyConnection

__all__ = ["Effect", "Passage"]

T = TypeVar("T")

Effect = Callable[[Side, Sequence[Shard]], T]
"""What a write does to a partition of one side: on these copies, at one instant."""

LAND_AGAIN_S = 0.5
LAND_TRIES = 40


class Passage:
    """Between one connection and the members."""

    def __init__(self, connection: "FaultyConnection") -> None:
        self.connection, self.cluster = connection, connection.cluster

    def latency_s(self) -> float:
        """What a call takes that nothing happens to."""
        return self.cluster.random.uniform(*self.cluster.faults.latency_s)

    def slow_until(self) -> float:
        """When a slow one arrives."""
        return trio.current_time() + self.cluster.random.uniform(*self.cluster.faults.slow_s)

    def late_s(self) -> float:
        """Mostly soon, sometimes very late."""
        return self.cluster.faults.late_s_max * float(self.cluster.random.random() ** 3)

    async def travel(self, deadline: float) -> None:
        """Let the time of a call pass."""
        if self.cluster.random.random() >= self.cluster.faults.instant_share:
            await self.until(trio.current_time() + self.latency_s(), deadline)
            return
        await checkpoint()
        if self.cluster.random.random() < 0.5:
            await checkpoint()
        if self.connection.is_cut:
            await self.end_blocked(deadline)

    async def until(self, time: float, deadline: float) -> None:
        """Sleep; fail at the deadline, or as long as this connection is cut off."""
        await self.cluster.agenda.sleep_until(self.cluster.tick(min(time, deadline)))
        if time > deadline:
            raise Unknown("no answer within the deadline")
        if self.connection.is_cut:
            await self.end_blocked(deadline)

    async def end_blocked(self, deadline: float) -> None:
        """There is no answer."""
        await self.cluster.agenda.sleep_until(max(deadline, trio.current_time()))
        raise Unknown("no answer within the deadline")

    async def unless_abandoned(self, partition: int, effect: Effect[T], wait: Awaitable[None]) -> None:
        """A write is on its way: whoever gives up on it now does not stop it."""
        try:
            await wait
        except (trio.Cancelled, Unknown):
            if self.cluster.random.random() < 0.5:
                self.land_after(self.late_s(), partition, effect)
            raise

    def land_after(
        self, delay_s: float, partition: int, effect: Effect[T], *, late: bool = True, tries: int = LAND_TRIES
    ) -> None:
        """It takes effect later, whatever has become of its caller."""
        self.cluster.agenda.after(delay_s, lambda: self._land(partition, effect, late, tries))

    def _land(self, partition: int, effect: Effect[T], late: bool, tries: int) -> None:
        side = self.connection.side if self.connection.side in self.cluster.sides else self.cluster.sides[0]
        if side.refuses:
            return
        if self.connection.is_cut or self.cluster.is_blocked(side, partition):
            if tries:
                self.land_after(LAND_AGAIN_S, partition, effect, late=late, tries=tries - 1)
            return
        if late:
            self.cluster.faults.happened(Fault.LANDED_LATE)
        effect(side, side.copies[partition])

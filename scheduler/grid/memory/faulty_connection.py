"""A connection that can be cut off, that hears of changes late or never, and whose events go astray."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.grid.leaving import leaving
from tenure.scheduler.grid.memory.connection import Connection
from tenure.scheduler.grid.memory.faults import OWNERSHIP, Fault
from tenure.scheduler.grid.memory.faulty_events import FaultySubscription
from tenure.scheduler.grid.memory.side import Side
from tenure.scheduler.grid.memory.subscriptions import Subscription
from tenure.scheduler.grid.port import EntryEvent, Map, Ownership, OwnershipEvent

if TYPE_CHECKING:
    from tenure.scheduler.grid.memory.faulty_cluster import FaultyCluster

__all__ = ["FaultyConnection"]


class FaultyConnection(Connection):
    """What goes wrong between a process and the grid, apart from single calls."""

    def __init__(self, cluster: "FaultyCluster", side: Side, host: str) -> None:
        super().__init__(cluster, side, host)
        self.cluster = cluster
        self.is_cut = False
        """Is the network between it and the members down?"""
        self._deaf_until = -1.0

    def cut(self) -> None:
        """The network between this connection and all members is down, until `mend`."""
        if not self.is_cut:
            self.is_cut = True
            self.cluster.faults.happened(Fault.CONNECTION_CUT)
            self.notice(OwnershipEvent.DISCONNECTED)

    def mend(self) -> None:
        """The network is there again."""
        if self.is_cut:
            self.is_cut = False
            self.notice(OwnershipEvent.RECONNECTED)

    def freeze(self) -> None:
        if self._thawed is None:
            self.cluster.faults.happened(Fault.CONNECTION_FROZEN)
        super().freeze()

    def kill(self) -> None:
        if not self._killed:
            self.cluster.faults.happened(Fault.CONNECTION_KILLED)
        super().kill()

    def is_deaf(self) -> bool:
        """Whether events can't reach this connection now."""
        return self.is_cut or trio.current_time() < self._deaf_until

    def ownership(self) -> Ownership:
        if self._ownership is None:
            self._look()
        assert self._ownership is not None
        return self._ownership

    def pair(self, side: Side, member: str | None) -> None:
        if self.paired is not None and member != self.paired:
            self._deaf_until = trio.current_time() + self.cluster.random.uniform(*self.cluster.faults.relisten_s)
        super().pair(side, member)

    def notice(self, event: OwnershipEvent) -> None:
        if self.is_cut and event is not OwnershipEvent.DISCONNECTED:
            return
        if self._thawed is not None:
            # A frozen process goes on from what it saw last.
            self._held.append(lambda: self._see(event))
            return
        lag_s = self.cluster.random.uniform(*self.cluster.faults.ownership_lag_s)
        if lag_s:
            self.cluster.agenda.after(lag_s, lambda: self._see(event))
        else:
            self._see(event)

    def _see(self, event: OwnershipEvent) -> None:
        """What a connection sees is how things stood when word of it came, not how they stand now."""
        self._version += 1
        self._look()
        if not self._watchers:
            return
        if self.cluster.faults.strike(OWNERSHIP, self.cluster.random, connection=self) is None:
            self.deliver(lambda: self._announce(event))
        else:
            self.cluster.faults.happened(Fault.OWNERSHIP_HINT_LOST)

    def _look(self) -> None:
        seen = Ownership(self._version, *self.side.public(), None if self.is_cut else self.paired)
        if self._ownership is not None:
            seen = seen._replace(leaving=leaving(self._ownership, seen))
        self._ownership = seen

    def _subscription(
        self, map: Map, on_entries: Callable[[list[EntryEvent]], None], key: tuple[int, bytes] | None
    ) -> Subscription:
        return FaultySubscription(self, map, on_entries, key)

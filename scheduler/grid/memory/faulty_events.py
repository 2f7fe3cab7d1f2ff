"""Events as a failing grid brings them: lost, late, twice, in another order, or not at all."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenure.scheduler.grid.memory.faults import EVENTS, Fault
from tenure.scheduler.grid.memory.subscriptions import Subscription
from tenure.scheduler.grid.port import EntryEvent

if TYPE_CHECKING:
    from tenure.scheduler.grid.memory.faulty_connection import FaultyConnection
    from tenure.scheduler.grid.port import Map

__all__ = ["FaultySubscription"]


class FaultySubscription(Subscription):
    """Puts each event through the faults of its cluster."""

    OVERTAKEN_WITHIN_S = 0.5

    def __init__(
        self,
        connection: "FaultyConnection",
        map: "Map",
        on_entries: Callable[[list[EntryEvent]], None],
        key: tuple[int, bytes] | None,
    ) -> None:
        super().__init__(connection, map, on_entries, key)
        self._connection = connection
        self._waiting: EntryEvent | None = None

    def hear(self, event: EntryEvent) -> None:
        cluster = self._connection.cluster
        faults = cluster.faults
        silent = cluster.tells_nothing(self._connection.side, event.partition)
        if faults.drop_all_events or self._connection.is_deaf() or silent:
            faults.happened(Fault.EVENT_LOST)
            return
        fault = faults.strike(
            EVENTS,
            cluster.random,
            trouble=cluster.in_trouble(event.partition),
            map=event.map,
            partition=event.partition,
            connection=self._connection,
        )
        if fault is None:
            super().hear(event)
            if self._waiting is not None:
                self._let_go(overtaken=True)
        elif fault is Fault.EVENT_LOST:
            faults.happened(fault)
        elif fault is Fault.EVENT_REORDERED and self._waiting is None:
            self._waiting = event
            cluster.agenda.after(self.OVERTAKEN_WITHIN_S, lambda: self._let_go(overtaken=False))
        else:
            faults.happened(Fault.EVENT_DOUBLED if fault is Fault.EVENT_DOUBLED else Fault.EVENT_DELAYED)
            if fault is Fault.EVENT_DOUBLED:
                super().hear(event)
            later = super().hear
            cluster.agenda.after(cluster.random.uniform(*faults.event_delay_s), lambda: later(event))

    def _let_go(self, *, overtaken: bool) -> None:
        """The event that was held back: it counts as reordered if another came first."""
        event, self._waiting = self._waiting, None
        if event is not None:
            if overtaken:
                self._connection.cluster.faults.happened(Fault.EVENT_REORDERED)
            super().hear(event)

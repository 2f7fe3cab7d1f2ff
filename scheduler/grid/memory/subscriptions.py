"""Who listens to which entries of a memory grid."""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from tenure.scheduler.grid.port import EntryEvent, Map

__all__ = ["Ears", "Listener", "Subscription", "reported"]

log = logging.getLogger(__name__)


class Listener(Protocol):
    """What a subscription asks of the connection it belongs to."""

    heard: frozenset[str | None]
    """The members whose entries it hears: the paired one, and those named to `hear`."""

    def deliver(self, act: Callable[[], None]) -> None:
        """Run `act` in the next tick, if and when the process of this connection can take it."""

    def hears_partition(self, partition: int, primary: str) -> bool:
        """Whether this connection is on the side of the cluster where `primary` holds the partition."""


class Subscription:
    """One `listen`: gathers what happens in one tick and tells it in one call."""

    def __init__(
        self,
        listener: Listener,
        map: Map,
        on_entries: Callable[[list[EntryEvent]], None],
        key: tuple[int, bytes] | None,
    ) -> None:
        self.listener = listener
        self.map = map
        self.key = key
        self._on_entries = on_entries
        self._pending: list[EntryEvent] = []
        self._closed = False

    def hear(self, event: EntryEvent) -> None:
        """Take one event; the first of a tick asks for the delivery of all."""
        self._pending.append(event)
        if len(self._pending) == 1:
            self.listener.deliver(self._tell)

    def close(self) -> None:
        """Nothing is told from here on."""
        self._closed = True

    def _tell(self) -> None:
        events, self._pending = self._pending, []
        if not self._closed and events:
            reported(lambda: self._on_entries(events))


class Ears:
    """All subscriptions of a cluster, by what they want to hear."""

    def __init__(self) -> None:
        self._local: defaultdict[tuple[Map, str | None], list[Subscription]] = defaultdict(list)
        self._keyed: defaultdict[tuple[Map, int, bytes], list[Subscription]] = defaultdict(list)
        self.maps: frozenset[Map] = frozenset()
        """The maps that anybody listens to: writers of other maps need not look any further."""

    def add(self, subscription: Subscription) -> None:
        """Listen to the members that are heard now."""
        for place in self._places(subscription):
            place.append(subscription)
        self._index()

    def remove(self, subscription: Subscription) -> None:
        """Stop listening; what is heard must still be that of `add`."""
        for place in self._places(subscription):
            place.remove(subscription)
        self._index()

    def tell(self, map: Map, partition: int, primary: str, key: bytes, value: bytes | None) -> None:
        """An entry was written (or removed: None) by the primary of its partition."""
        local = self._local.get((map, primary))
        keyed = self._keyed.get((map, partition, key)) if self._keyed else None
        if local or keyed:
            event = EntryEvent(map, partition, key, value)
            for subscription in local or ():
                subscription.hear(event)
            for subscription in keyed or ():
                if subscription.listener.hears_partition(partition, primary):
                    subscription.hear(event)

    def _places(self, subscription: Subscription) -> list[list[Subscription]]:
        if subscription.key is None:
            return [self._local[subscription.map, member] for member in sorted(subscription.listener.heard, key=str)]
        return [self._keyed[subscription.map, *subscription.key]]

    def _index(self) -> None:
        everybody = [*self._local.values(), *self._keyed.values()]
        self.maps = frozenset(subscription.map for subscriptions in everybody for subscription in subscriptions)
        for place, subscriptions in list(self._keyed.items()):
            if not subscriptions:
                del self._keyed[place]


def reported(call: Callable[[], None]) -> None:
    """Run a callback of the core; what it raises is reported, and ends neither the subscription nor the grid."""
    try:
        call()
    except Exception:
        log.exception("a listener of the grid raised: what it was told is lost, later events still come")

"""Subscriptions to events, kept standing on the connections where they belong.

    wanted: every open subscription on each of its connections      standing: what members have confirmed
                                  `reconcile` brings the second to the first

A subscription to a map stands on the connections to the paired member and to those named to `hear`, and
asks each for its own events; one to a key, or to lost partitions, stands on all connections likewise, so
that no member has to pass on another's. When a connection goes, what stood on it is gone, with the events
in between.
"""

import logging
import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
from hazelcast.protocol.builtin import FixSizedTypesCodec
from hazelcast.protocol.client_message import (
    EVENT_HEADER_SIZE,
    REQUEST_HEADER_SIZE,
    InboundMessage,
    OutboundMessage,
    create_initial_buffer,
)
from hazelcast.protocol.codec import (
    map_add_entry_listener_codec,
    map_add_entry_listener_to_key_codec,
    map_remove_entry_listener_codec,
)
from hazelcast.serialization.data import Data

from tenure.scheduler.grid.hazelcast.calls import About, Caller, Notice
from tenure.scheduler.grid.hazelcast.wire import Requests, decode_entry_event, decode_nothing
from tenure.scheduler.grid.port import EntryEvent, GridError, Map

__all__ = ["EntrySubscription", "LostPartitions", "Subscription", "Subscriptions"]

_log = logging.getLogger(__name__)

_ADDED, _REMOVED, _UPDATED, _EVICTED, _EXPIRED, _MERGED = 1, 2, 4, 8, 16, 128
_CAME, _WENT = _ADDED | _UPDATED | _MERGED, _REMOVED | _EVICTED | _EXPIRED
_LOST_ADD, _LOST_REMOVE = 0x000600, 0x000700
_LOCAL_ONLY = True


class Subscription(ABC):
    """What is to be heard, and who is told. Messages gather in `burst` until trio comes round."""

    everywhere: bool
    """On all connections, or on those to the paired member (and others whose partitions this node owns) alone."""

    def __init__(self, caller: Caller) -> None:
        self.standing: dict[tuple[Any, int], Any] = {}
        """By connection and request: the member's name for it; None while it is asked for."""
        self._caller = caller
        self._burst: deque[InboundMessage] = deque()
        self._handed_over = False

    @abstractmethod
    def requests(self) -> Sequence[OutboundMessage]:
        """What to ask of a member; each is a registration of its own."""

    @abstractmethod
    def removal(self, registration: Any) -> OutboundMessage:
        """What ends a registration."""

    @abstractmethod
    def heard(self, messages: list[InboundMessage]) -> None:
        """Tell of them, in the trio thread."""

    def hear(self, message: InboundMessage) -> None:
        """Called in the client's thread, which an exception would end, or in trio's."""
        self._burst.append(message)
        # Both at once: the flag is set after a message was put there, and cleared before they are taken.
        if not self._handed_over:
            self._handed_over = True
            self._caller.handover.put(self)

    def arrive(self) -> None:
        self._handed_over = False
        burst = [self._burst.popleft() for _ in range(len(self._burst))]
        if burst:
            self.heard(burst)


class EntrySubscription(Subscription):
    """Entries of a map that came, changed or went: those of one member, or one entry wherever it lives."""

    def __init__(
        self,
        caller: Caller,
        requests: Requests,
        map: Map,
        partition_count: int,
        on_entries: Callable[[list[EntryEvent]], None],
        key: tuple[int, bytes] | None,
        *,
        removals: bool,
    ) -> None:
        super().__init__(caller)
        self.everywhere = key is not None
        self._removals = removals
        self._requests, self._map, self._partition_count, self._on_entries = requests, map, partition_count, on_entries
        self._partition = None if key is None else key[0]
        self._key = None if key is None else Data(requests.key_data(*key))

    def requests(self) -> Sequence[OutboundMessage]:
        # Two, because a member that sends values would also send those of entries that went.
        requests = [self._request(_CAME, with_value=True)]
        if self._removals:
            requests.append(self._request(_WENT, with_value=False))
        return requests

    def _request(self, events: int, *, with_value: bool) -> OutboundMessage:
        name = self._requests.name
        request: OutboundMessage
        if self._key is None:
            request = map_add_entry_listener_codec.encode_request(name, with_value, events, _LOCAL_ONLY)
        else:
            request = map_add_entry_listener_to_key_codec.encode_request(
                name, self._key, with_value, events, _LOCAL_ONLY
            )
        return request

    def removal(self, registration: Any) -> OutboundMessage:
        request: OutboundMessage = map_remove_entry_listener_codec.encode_request(self._requests.name, registration)
        return request

    def heard(self, messages: list[InboundMessage]) -> None:
        events = []
        for message in messages:
            if decoded := decode_entry_event(message, self._partition_count):
                event_type, partition, key, value = decoded
                # Members take keys of the same bytes in other partitions for the same.
                if self._partition in (None, partition):
                    events.append(EntryEvent(self._map, partition, key, value if event_type & _CAME else None))
        if events:
            try:
                self._on_entries(events)
            except Exception:  # noqa: BLE001  # somebody else's code; logged
                _log.exception("A listener to %s failed; its subscription goes on", self._requests.name)


class LostPartitions(Subscription):
    """Partitions that lost their primary and so many backups; the client has no codec for this."""

    everywhere = True

    def __init__(self, caller: Caller, on_lost: Callable[[int, int], None]) -> None:
        super().__init__(caller)
        self._on_lost = on_lost

    def requests(self) -> Sequence[OutboundMessage]:
        buffer = create_initial_buffer(REQUEST_HEADER_SIZE + 1, _LOST_ADD, True)
        FixSizedTypesCodec.encode_boolean(buffer, REQUEST_HEADER_SIZE, _LOCAL_ONLY)
        return [OutboundMessage(buffer, False)]

    def removal(self, registration: Any) -> OutboundMessage:
        buffer = create_initial_buffer(REQUEST_HEADER_SIZE + 17, _LOST_REMOVE, True)
        FixSizedTypesCodec.encode_uuid(buffer, REQUEST_HEADER_SIZE, registration)
        return OutboundMessage(buffer, True)

    def heard(self, messages: list[InboundMessage]) -> None:
        for message in messages:
            partition, lost_backups = struct.unpack_from("<ii", message.start_frame.buf, EVENT_HEADER_SIZE)
            self._on_lost(partition, lost_backups)


class Subscriptions:
    """All open subscriptions of a client. In the trio thread, but for `Subscription.hear`."""

    def __init__(self, caller: Caller, listener_service: Any, on_restored: Callable[[], None]) -> None:
        self._caller = caller
        self._listener_service = listener_service
        self._on_restored = on_restored
        self._open: set[Subscription] = set()
        self._near: frozenset[Any] = frozenset()
        self._connections: tuple[Any, ...] = ()
        self._changed = trio.Event()
        self._restoring_until: float | None = None

    @asynccontextmanager
    async def open(self, subscription: Subscription) -> AsyncIterator[None]:
        """Stands when this is entered, unless a member takes too long to confirm it: then it will."""
        self._open.add(subscription)
        try:
            self._reconcile()
            with trio.move_on_after(self._caller.op_deadline_s):
                while not self._stands(subscription):
                    await self._changed.wait()
            yield
        finally:
            self._open.discard(subscription)
            for place in list(subscription.standing):
                self._end(subscription, place)

    def follow(self, near: Iterable[Any], connections: Sequence[Any], *, events_lost: bool) -> None:
        """The connections as they are now, and those to members whose own events are wanted.

        `events_lost` (or a member more to listen to): tell when what is wanted stands again.
        """
        before, self._near, self._connections = self._near, frozenset(near), tuple(connections)
        # Nobody listened to the members that are new here, though somebody wanted to.
        events_lost |= not self._near <= before and any(not subscription.everywhere for subscription in self._open)
        if events_lost:
            self._restoring_until = trio.current_time() + self._caller.op_deadline_s
        self.tend()

    def tend(self) -> None:
        """Ask again for what was refused, and see whether all stands."""
        self._reconcile()
        self._tell()

    def _reconcile(self) -> None:
        live = {connection for connection in self._connections if connection.live}
        for subscription in self._open:
            wanted = live if subscription.everywhere else live & self._near
            for place in list(subscription.standing):
                if place[0] not in wanted:
                    self._end(subscription, place)
            for connection in wanted:
                for index, request in enumerate(subscription.requests()):
                    if (connection, index) not in subscription.standing:
                        self._begin(subscription, (connection, index), request)

    def _stands(self, subscription: Subscription) -> bool:
        return bool(subscription.standing) and all(name is not None for name in subscription.standing.values())

    def _begin(self, subscription: Subscription, place: tuple[Any, int], request: OutboundMessage) -> None:
        subscription.standing[place] = None

        def registered(name: Any, failure: GridError | None) -> None:
            if failure is not None:
                if subscription.standing.get(place, failure) is None:
                    del subscription.standing[place]  # `tend` asks again
                self._listener_service.remove_event_handler(request.get_correlation_id())
            elif subscription in self._open and subscription.standing.get(place, failure) is None:
                subscription.standing[place] = (name, request.get_correlation_id())
            else:
                self._withdraw(subscription, place[0], (name, request.get_correlation_id()))
            self._tell()

        # It waits as long as its connection lives: asked twice, a slow member would tell everything twice.
        notice = Notice(
            self._caller, request, map_add_entry_listener_codec.decode_response, About("listen"), registered,
            connection=place[0], event_handler=subscription.hear, urgent=True,
        )  # fmt: skip
        self._caller.send(notice, float("inf"))

    def _end(self, subscription: Subscription, place: tuple[Any, int]) -> None:
        standing = subscription.standing.pop(place)
        if standing is not None:
            self._withdraw(subscription, place[0], standing)

    def _withdraw(self, subscription: Subscription, connection: Any, standing: tuple[Any, int]) -> None:
        name, correlation_id = standing
        self._listener_service.remove_event_handler(correlation_id)
        if connection.live:
            request = subscription.removal(name)
            notice = Notice(
                self._caller, request, decode_nothing, About("unlisten"), lambda _result, _failure: None,
                connection=connection, urgent=True,
            )  # fmt: skip
            self._caller.send(notice)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
        if self._restoring_until is None or not self._connections:
            return
        if all(map(self._stands, self._open)) or trio.current_time() >= self._restoring_until:
            self._restoring_until = None
            self._on_restored()

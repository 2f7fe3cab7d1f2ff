"""The Hazelcast client, with what it lacks: it tells what it hears, and does not wait for ever.

Hooks are in place before its threads start. What happens in those threads is handed over to trio.
"""

import errno
import logging
import os
import time
from collections.abc import Callable
from typing import Any

from hazelcast import HazelcastClient
from hazelcast.config import Config, ReconnectMode
from hazelcast.connection import Connection
from hazelcast.core import Address
from hazelcast.errors import (
    AuthenticationError,
    ClientNotAllowedInClusterError,
    InvalidConfigurationError,
    TargetDisconnectedError,
)

from tenure.scheduler.grid.hazelcast.addresses import Addresses
from tenure.scheduler.grid.hazelcast.reactor import Serials, quicken
from tenure.scheduler.grid.hazelcast.settings import HazelcastSettings
from tenure.scheduler.grid.hazelcast.steady import keep_steady

__all__ = ["TenureClient"]

_log = logging.getLogger(__name__)

_WATCH_PERIOD_S = 0.25


class TenureClient(HazelcastClient):
    """`on_change` is called in the client's threads: after a change of members, partitions, connections or state."""

    def __init__(self, settings: HazelcastSettings, on_change: Callable[[str, Any], None]) -> None:
        self.settings = settings
        self.failures: dict[str, str] = {}
        """Why the last try of each address failed."""
        self._on_change = on_change
        self._first_seen: dict[int, float] = {}
        self._addresses = Addresses(settings.addresses)
        keep_steady()
        super().__init__(_config(settings))

    def _start(self) -> None:
        view = self._cluster_view_listener
        view._partition_service = _Partitions(view._partition_service, self._on_change)
        view._cluster_service = _Members(view._cluster_service, self._members_changed)
        setattr(self._connection_manager, "_connect", self._connect)  # noqa: B010  # a method of one object
        self._connection_manager._address_provider = self._addresses
        self._start_connecting: Any = self._connection_manager._start_connect_to_cluster_thread
        setattr(self._connection_manager, "_start_connect_to_cluster_thread", self._connect_in_thread)  # noqa: B010
        handler_of: Any = view._handler
        setattr(view, "_handler", lambda connection: _News(connection, handler_of(connection)))  # noqa: B010  # likewise
        self._connection_manager.add_listener(
            lambda connection: self._on_change("connection", connection), self._closed
        )
        self.lifecycle_service.add_listener(lambda state: self._on_change("lifecycle", state))
        quicken(self._reactor)
        self._invocation_service._next_correlation_id = Serials()  # type: ignore[assignment]
        self._reactor.add_timer(_WATCH_PERIOD_S, self._watch)
        super()._start()  # type: ignore[no-untyped-call]  # the client is half typed

    def _closed(self, connection: Any) -> None:
        # The client would keep who hears from it, and so the connection, for each that was ever lost.
        handlers = self._listener_service._event_handlers
        for number, handler in list(handlers.items()):
            if isinstance(handler, _News) and handler.connection is connection:
                handlers.pop(number, None)
        self._on_change("connection", connection)

    def _members_changed(self, version: int) -> None:
        # The client would do this, once a second. (Both at once is harmless: one of two connections is closed.)
        manager = self._connection_manager
        for member in self.cluster_service.get_members():
            if member.uuid not in manager.active_connections:
                manager._get_or_connect_to_member(member)
        self._on_change("members", version)

    @property
    def connections(self) -> dict[Any, Any]:
        """Live connections by the member's uuid; changed by the client's threads."""
        manager: Any = self._connection_manager
        return dict(manager.active_connections)

    @property
    def partition_table(self) -> dict[int, Any]:
        """Each partition's primary; replaced, never changed."""
        table: dict[int, Any] = self._internal_partition_service._partition_table.partitions
        return table

    def connection_of(self, partition: int) -> Any:
        """The connection to a partition's primary, or None where there is none now."""
        return self._connection_manager.get_connection(self.partition_table.get(partition))

    @property
    def invocations(self) -> Any:
        return self._invocation_service

    @property
    def listeners(self) -> Any:
        return self._listener_service

    @property
    def cluster_id(self) -> Any:
        return self._connection_manager._cluster_id

    def shut_out(self) -> bool:
        """Whether every address was tried, and each said that we don't belong there."""
        failures = list(self.failures.values())  # another thread adds to them
        return len(failures) >= self._addresses.count and all("cluster name" in why for why in failures)

    def turn_to(self, host: str, port: int) -> bool:
        """Have the news of members from the one at this address, and leave those that are known now. False: it is one
        of these, or did not let us in. Blocks for as long as that takes."""
        manager: Any = self._connection_manager
        try:
            connection = self._connect(Address(host, port), manager._get_or_connect_to_address)
        except (ClientNotAllowedInClusterError, InvalidConfigurationError):
            return False
        known = {member.uuid for member in self.cluster_service.get_members()}
        if connection is None or connection.remote_uuid in known:
            return False
        left = [other for uuid, other in self.connections.items() if uuid in known]
        teller = self._cluster_view_listener._listener_added_connection
        # Last the one that has told us so far: by then there is but the new one to ask.
        for other in sorted(left, key=lambda other: other is teller):
            other.close_connection("its member sees too few others", None)
        return True

    def _connect(self, target: Any, connect: Callable[[Any], Any]) -> Any:
        """As the client's own; but it keeps the reason instead of logging a page about it."""
        where = getattr(target, "address", target)  # a member that we know of, or one of the addresses we were given
        address = f"{where.host}:{where.port}"
        try:
            connection = connect(target).result()
        except (ClientNotAllowedInClusterError, InvalidConfigurationError) as error:
            self.failures[address] = f"the member refused it: {error}"
            raise
        except Exception as error:  # noqa: BLE001  # as the client does: whatever it is, the next address is tried
            self.failures[address] = _reason(error, self.settings)
            return None
        self.failures.pop(address, None)
        return connection

    def _connect_in_thread(self) -> None:
        """As the client's own; but where no thread can be started now, it is tried later. It would end the reactor, or
        whoever has closed the last connection, and nobody would ever connect again."""
        try:
            self._start_connecting()
        except RuntimeError as error:
            _log.warning("Not connected to cluster %s, for now: %s", self.settings.cluster_name, error)
            self._connection_manager._connect_to_cluster_thread_running = False
            self._reactor.add_timer(_WATCH_PERIOD_S, self._connect_again)

    def _connect_again(self) -> None:
        if self._internal_lifecycle_service.running and not self.connections:
            self._connect_in_thread()

    def _watch(self) -> None:
        """Close connections whose member does not let us in: a frozen one would hold up the client for ever."""
        now = time.monotonic()
        waiting: dict[int, float] = {}
        for connection in list(self._reactor.map.values()):
            if isinstance(connection, Connection) and connection.live and connection.remote_uuid is None:
                since = waiting[id(connection)] = self._first_seen.get(id(connection), now)
                if now - since > self.settings.authenticate_timeout_s:
                    connection.close_connection(_FROZEN, None)
        self._first_seen = waiting
        if self._internal_lifecycle_service.running:
            self._reactor.add_timer(_WATCH_PERIOD_S, self._watch)


_NO_ANSWER = "no connection came about (is the address right, and does a network lead there?)"
_FROZEN = "it accepts connections but does not answer"


class _News:
    """Hears what one connection tells of members and partitions."""

    def __init__(self, connection: Any, hear: Callable[[Any], None]) -> None:
        self.connection, self._hear = connection, hear

    def __call__(self, message: Any) -> None:
        self._hear(message)


class _Partitions:
    """Stands between the pushed partition table and the client's keeper of it."""

    def __init__(self, keeper: Any, on_change: Callable[[str, Any], None]) -> None:
        self._keeper, self._on_change = keeper, on_change

    def handle_partitions_view_event(self, connection: Any, partitions: Any, version: int) -> None:
        self._keeper.handle_partitions_view_event(connection, partitions, version)
        self._on_change("partitions", version)


class _Members:
    """Likewise for the pushed member list."""

    def __init__(self, keeper: Any, on_change: Callable[[int], None]) -> None:
        self._keeper, self._on_change = keeper, on_change

    def handle_members_view_event(self, version: int, members: Any) -> None:
        self._keeper.handle_members_view_event(version, members)
        self._on_change(version)

    def clear_member_list_version(self) -> None:
        self._keeper.clear_member_list_version()


def _config(settings: HazelcastSettings) -> Config:
    config = Config()
    config.cluster_name = settings.cluster_name
    config.cluster_members = list(settings.addresses)
    config.statistics_enabled = False
    # Its constructor would wait for every member in turn, frozen ones included; we wait ourselves, with a deadline.
    config.async_start = True
    config.reconnect_mode = ReconnectMode.ON
    config.connection_timeout = settings.authenticate_timeout_s
    config.heartbeat_interval = max(0.5, settings.heartbeat_s / 5)
    config.heartbeat_timeout = settings.heartbeat_s
    config.invocation_retry_pause = settings.retry_pause_s
    config.retry_initial_backoff = min(0.1, settings.reconnect_pause_max_s)
    config.retry_max_backoff = settings.reconnect_pause_max_s
    config.retry_multiplier = 1.5
    # An acknowledgement that comes by way of the primary costs less, and its absence is noticed sooner.
    config.backup_ack_to_client_enabled = False
    # The client heeds this only where such acknowledgements come to itself: now it is the members' flag that counts.
    config.fail_on_indeterminate_operation_state = True
    # A write that may have been applied is never repeated behind our back.
    config.redo_operation = False
    return config


def _reason(error: Exception, settings: HazelcastSettings) -> str:
    text = str(error).partition("\n")[0]
    if isinstance(error, AuthenticationError):
        return f"a member answers, but not one of a cluster of the name {settings.cluster_name!r} (cluster name)"
    if os.strerror(errno.ECONNREFUSED) in text:
        return "nothing listens there"
    if _FROZEN in text:
        return _FROZEN
    if isinstance(error, TargetDisconnectedError) and text in ("", type(error).__name__):
        return _NO_ANSWER
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

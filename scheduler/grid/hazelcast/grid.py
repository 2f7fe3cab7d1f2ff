"""The grid on Hazelcast: the port's calls, on one client and one connection to each member."""

import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, NoReturn

import trio

from tenure.scheduler.grid.hazelcast import wire
from tenure.scheduler.grid.hazelcast.calls import About, Call, Caller
from tenure.scheduler.grid.hazelcast.client import TenureClient
from tenure.scheduler.grid.hazelcast.discards import Discards
from tenure.scheduler.grid.hazelcast.handover import Handover
from tenure.scheduler.grid.hazelcast.members_told import MemberTold, decode_state, state_request
from tenure.scheduler.grid.hazelcast.ownership import OwnershipKeeper
from tenure.scheduler.grid.hazelcast.reading import Reading
from tenure.scheduler.grid.hazelcast.scanning import Scan
from tenure.scheduler.grid.hazelcast.settings import CannotConnect, HazelcastSettings, map_name
from tenure.scheduler.grid.hazelcast.sides import Sides
from tenure.scheduler.grid.hazelcast.subscriptions import EntrySubscription, LostPartitions, Subscriptions
from tenure.scheduler.grid.hazelcast.writing import Writing
from tenure.scheduler.grid.port import Entry, EntryEvent, Grid, GridError, Map, Ownership, OwnershipEvent

__all__ = ["HazelcastGrid", "MemberSeen"]

_log = logging.getLogger(__name__)

_TEND_PERIOD_S = 0.5
_SHUTDOWN_TIMEOUT_S = 5.0
_OTHERS_TIMEOUT_S = 0.5
"""How long a new connection waits for those to the other members; one of them may be frozen."""
_GET_ALL_MAX = 500
_TTL_MS_MAX = 2**31 * 1000 - 1
_NO_TTL = -1
_BACKUPS_TOLD = "tenure.backups"


class MemberSeen(NamedTuple):
    """A member as a client sees it: `attributes` are what its configuration chose to tell."""

    id: str
    address: str
    version: str
    attributes: dict[str, str]


class _Change(NamedTuple):
    """Something that the client's threads noticed."""

    grid: "HazelcastGrid"
    kind: str
    what: Any

    def arrive(self) -> None:
        self.grid._changed(self.kind, self.what)


class HazelcastGrid(Grid):
    """A connection to a Hazelcast cluster. Made by `connect`; one trio thread per grid."""

    def __init__(self, client: TenureClient, handover: Handover, settings: HazelcastSettings) -> None:
        self.settings = settings
        self.partition_count = 0
        self._client = client
        self._caller = Caller(client.invocations, handover, settings.op_deadline_s)
        self._keeper = OwnershipKeeper(client, settings, os.urandom(8).hex())
        self._watchers: list[Callable[[OwnershipEvent], None]] = []
        self._subscriptions = Subscriptions(self._caller, client.listeners, self._restored)
        self._requests: dict[Map, wire.Requests] = {}
        self._changes = trio.Event()
        self._heard: frozenset[str] = frozenset()
        self._was_connected = False
        self._cut_off_s: float | None = None
        self._members_are_news = True  # not when they may be those of before a disconnection
        self._owes_reconnected = False
        self._writing = Writing()
        self._reading = Reading(handover, self._writing)
        self._sides = Sides(client, settings)
        self._discards = Discards(self._caller, self._requests, settings, client.connection_of)

    @property
    def address(self) -> str:
        members = [member.address for member in self.ownership().members]
        return f"{self.settings.cluster_name}@{','.join(members or self.settings.addresses)}"

    # -- connecting -------------------------------------------------------------------------------

    @classmethod
    @asynccontextmanager
    async def connect(cls, settings: HazelcastSettings | None = None) -> AsyncIterator["HazelcastGrid"]:
        """A grid that knows its members and partitions. Raises `CannotConnect` if that takes too long."""
        settings = settings or HazelcastSettings()
        handover = Handover()
        waiting: list[HazelcastGrid] = []  # what the client tells before there is a grid is read from it later

        def on_change(kind: str, what: Any) -> None:
            for grid in waiting:
                handover.put(_Change(grid, kind, what))

        client = await trio.to_thread.run_sync(TenureClient, settings, on_change)
        raised: BaseException | None = None
        try:
            grid = cls(client, handover, settings)
            waiting.append(grid)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(grid._exchange)
                nursery.start_soon(grid._caller.watch_deadlines)
                nursery.start_soon(grid._tend)
                nursery.start_soon(grid._discards.run)
                nursery.start_soon(grid._sides.run)
                try:
                    await grid._connected()
                    async with grid._subscriptions.open(LostPartitions(grid._caller, grid._partition_lost)):
                        yield grid
                except BaseException as error:
                    raised = error
                    raise
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # That there is a nursery in here is no business of the caller's.
            if raised is not None and list(group.exceptions) == [raised]:
                raise raised from raised.__cause__
            raise
        finally:
            waiting.clear()
            with trio.move_on_after(_SHUTDOWN_TIMEOUT_S, shield=True):
                try:
                    await trio.to_thread.run_sync(client.shutdown, abandon_on_cancel=True)
                except RuntimeError:
                    # Python is ending, and from 3.12 on starts no thread by then. Nobody else waits for this loop.
                    client.shutdown()

    async def _connected(self) -> None:
        settings = self.settings
        with trio.move_on_after(settings.connect_timeout_s):
            while not self._complete():
                if self._client.shut_out() or not self._client.lifecycle_service.is_running():
                    break
                changes = self._changes
                if self.partition_count:
                    # Partitions are dealt out when the first operation asks for one.
                    await self._first_read()
                with trio.move_on_after(0.05):
                    await changes.wait()
                self._refresh()
            else:
                with trio.move_on_after(_OTHERS_TIMEOUT_S):
                    while len(self._client.connections) < len(self._keeper.now.members):
                        await self._changes.wait()
                return
        tried = [f"{address}: {why}" for address, why in sorted(self._client.failures.items())]
        if self._keeper.now.paired is not None:
            tried.append("a member let us in, but its cluster has not dealt out its partitions yet")
        where = ", ".join(settings.addresses)
        raise CannotConnect(
            f"No connection to cluster {settings.cluster_name!r} at {where}: {'; '.join(tried) or 'no answer yet'}. "
            "Start a member there, or name the address and the cluster of a running one."
        )

    async def _exchange(self) -> None:
        with self._writing.at_ends():
            await self._reading.run()

    def _complete(self) -> bool:
        now = self._keeper.now
        return now.paired is not None and bool(now.primaries) and None not in now.primaries

    async def _first_read(self) -> None:
        try:
            await self.get(Map.HEADS, 0, b"", timeout_s=0.5)
        except GridError:
            pass  # too early, or too few members yet: either shows in what is waited for

    # -- single entries ---------------------------------------------------------------------------

    async def get(self, map: Map, partition: int, key: bytes, *, timeout_s: float | None = None) -> bytes | None:
        request = self._requests[map].get(partition, key)
        about = About("get", map.value, partition, key)
        value: bytes | None = await self._caller.call(request, wire.decode_value, partition, timeout_s, about)
        return value

    async def get_all(
        self, map: Map, partition: int, keys: Sequence[bytes], *, timeout_s: float | None = None
    ) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        if not keys:
            await trio.lowlevel.checkpoint()
        for start in range(0, len(keys), _GET_ALL_MAX):
            request = self._requests[map].get_all(partition, keys[start : start + _GET_ALL_MAX])
            about = About(f"get {len(keys)} of", map.value, partition)
            found.update(await self._caller.call(request, wire.decode_entries, partition, timeout_s, about))
        return found

    async def set(
        self,
        map: Map,
        partition: int,
        key: bytes,
        value: bytes,
        *,
        ttl_s: float | None = None,
        timeout_s: float | None = None,
    ) -> None:
        # 0 would mean 'for ever'.
        ttl_ms = _NO_TTL if ttl_s is None else min(max(1, round(ttl_s * 1000)), _TTL_MS_MAX)
        request = self._requests[map].set(partition, key, value, ttl_ms)
        await self._caller.call(
            request, wire.decode_nothing, partition, timeout_s, About("set", map.value, partition, key)
        )

    async def set_together(
        self, map: Map, partition: int, entries: Mapping[bytes, bytes], *, timeout_s: float | None = None
    ) -> None:
        if entries:
            request = self._requests[map].put_all(partition, entries)
            about = About("set_together", map.value, partition)
            await self._caller.call(request, wire.decode_nothing, partition, timeout_s, about)

    async def put_if_absent(
        self, map: Map, partition: int, key: bytes, value: bytes, *, timeout_s: float | None = None
    ) -> bytes | None:
        request = self._requests[map].put_if_absent(partition, key, value)
        about = About("put if absent", map.value, partition, key)
        there: bytes | None = await self._caller.call(request, wire.decode_value, partition, timeout_s, about)
        return there

    async def replace_if_same(
        self, map: Map, partition: int, key: bytes, old: bytes, new: bytes, *, timeout_s: float | None = None
    ) -> bool:
        request = self._requests[map].replace_if_same(partition, key, old, new)
        about = About("replace if same", map.value, partition, key)
        return await self._caller.compare_and_set(request, wire.decode_replaced, partition, timeout_s, about)

    async def remove_if_same(
        self, map: Map, partition: int, key: bytes, old: bytes, *, timeout_s: float | None = None
    ) -> bool:
        request = self._requests[map].remove_if_same(partition, key, old)
        about = About("remove if same", map.value, partition, key)
        return await self._caller.compare_and_set(request, wire.decode_replaced, partition, timeout_s, about)

    async def delete(self, map: Map, partition: int, key: bytes, *, timeout_s: float | None = None) -> None:
        request = self._requests[map].delete(partition, key)
        about = About("delete", map.value, partition, key)
        await self._caller.call(request, wire.decode_nothing, partition, timeout_s, about)

    def discard(self, map: Map, partition: int, keys: Sequence[bytes]) -> None:
        self._discards.add(map, partition, keys)

    # -- one partition ----------------------------------------------------------------------------

    def scan(
        self, map: Map, partition: int, *, page: int = 100, timeout_s: float | None = None
    ) -> AsyncIterator[list[Entry]]:
        return Scan(self._caller, map, self._requests[map], partition, page, timeout_s)

    # -- hints ------------------------------------------------------------------------------------

    def listen(
        self,
        map: Map,
        on_entries: Callable[[list[EntryEvent]], None],
        *,
        key: tuple[int, bytes] | None = None,
        removals: bool = True,
    ) -> AbstractAsyncContextManager[None]:
        requests = self._requests[map]
        subscription = EntrySubscription(
            self._caller, requests, map, self.partition_count, on_entries, key, removals=removals
        )
        return self._subscriptions.open(subscription)

    def hear(self, members: frozenset[str]) -> None:
        self._heard = members
        self._follow()

    def ownership(self) -> Ownership:
        return self._keeper.now

    @asynccontextmanager
    async def watch_ownership(self, on_ownership: Callable[[OwnershipEvent], None]) -> AsyncIterator[None]:
        watcher = partial(on_ownership)  # the same function may watch twice
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    def members_seen(self) -> tuple[MemberSeen, ...]:
        """The members with what their configuration tells clients about itself."""
        return tuple(
            MemberSeen(
                str(info.uuid),
                f"{info.address.host}:{info.address.port}",
                f"{info.version.major}.{info.version.minor}.{info.version.patch}",
                dict(info.attributes or {}),
            )
            for info in self._client.cluster_service.get_members()
        )

    async def members_told(self) -> tuple[MemberTold, ...]:
        """What those members answer that we are connected to, asked all at once; without those that don't."""
        found: list[MemberTold] = []

        async def ask(address: str, connection: Any) -> None:
            call = Call(self._caller, state_request(), decode_state, -1, About("ask", address), connection=connection)
            try:
                told = await self._caller.run(call)
            except GridError:
                return
            if told is not None:
                found.append(MemberTold(address, *told))

        addresses = {member.id: member.address for member in self.members_seen()}
        async with trio.open_nursery() as nursery:
            for uuid, connection in list(self._client.connections.items()):
                if (address := addresses.get(str(uuid))) is not None:
                    nursery.start_soon(ask, address, connection)
        return tuple(sorted(found))

    # -- what the client notices ------------------------------------------------------------------

    def _changed(self, kind: str, what: Any) -> None:
        self._members_are_news |= kind == "members"
        self._refresh()
        if kind == "lifecycle" and what == "DISCONNECTED":
            if self._was_connected and self._cut_off_s is None:
                self._cut_off_s = trio.current_time()
                _log.warning("Cut off from cluster %s: no member is connected any more", self.settings.cluster_name)
            self._members_are_news = False
            self._tell(OwnershipEvent.DISCONNECTED)
        elif kind == "lifecycle" and what == "CONNECTED" and self._was_connected:
            self._follow(events_lost=True)
        elif kind == "lifecycle" and what == "SHUTDOWN":
            # Not by us: what it tells then is not heard any more.
            _log.error("Closed for good: cluster %s has come back as another one", self.settings.cluster_name)
            self._tell(OwnershipEvent.CLOSED)
        self._changes.set()
        self._changes = trio.Event()

    def _refresh(self) -> None:
        if not self.partition_count:
            self.partition_count = self._client.partition_service.get_partition_count()
            if self.partition_count:
                self._requests.update({map: wire.Requests(map_name(map), self.partition_count) for map in Map})
        events = self._keeper.refresh(self.partition_count)
        self._follow()
        for event in events:
            self._tell(event)
        self._was_connected |= self._complete()
        self._tell_reconnected()

    def _follow(self, *, events_lost: bool = False) -> None:
        connections = {str(uuid): connection for uuid, connection in self._client.connections.items()}
        self._reading.follow(list(connections.values()))
        near = {self._keeper.now.paired, *self._heard}
        near_connections = [connection for member, connection in connections.items() if member in near]
        self._subscriptions.follow(near_connections, list(connections.values()), events_lost=events_lost)

    def _restored(self) -> None:
        self._owes_reconnected = True
        self._tell_reconnected()

    def _tell_reconnected(self) -> None:
        """Not before it is known to which members: MERGED must come first."""
        if self._owes_reconnected and self._members_are_news and self._complete():
            self._owes_reconnected = False
            if self._cut_off_s is not None:
                cut_off_s, self._cut_off_s = trio.current_time() - self._cut_off_s, None
                _log.warning("Connected to cluster %s again, after %.1f s", self.settings.cluster_name, cut_off_s)
            self._tell(OwnershipEvent.RECONNECTED)

    def _partition_lost(self, _partition: int, lost_backups: int) -> None:
        if lost_backups >= self._backups():
            self._tell(OwnershipEvent.PARTITION_LOST)

    def _backups(self) -> int:
        """As members tell it; where they don't agree, the fewest: an alarm too many costs a look."""
        told = (member.attributes.get(_BACKUPS_TOLD, "") for member in self.members_seen())
        return min((int(text) for text in told if text.isdigit()), default=self.settings.backups)

    def _tell(self, event: OwnershipEvent) -> None:
        for watcher in list(self._watchers):
            try:
                watcher(event)
            except Exception:  # noqa: BLE001  # somebody else's code; logged
                _log.exception("A watcher of ownership failed; it goes on watching")

    async def _tend(self) -> NoReturn:
        """Look now and then, should a push from the members or a confirmation have been lost."""
        while True:
            await trio.sleep(_TEND_PERIOD_S)
            self._refresh()
            if self._keeper.now.paired is not None and not self._complete():
                await self._first_read()  # a cluster that was started anew

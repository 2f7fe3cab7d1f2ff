"""A connection to the memory grid: the direct way, where calls meet the data without anything between."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import trio
from trio.lowlevel import checkpoint

from tenure.scheduler.grid.memory.side import Side
from tenure.scheduler.grid.memory.subscriptions import Subscription, reported
from tenure.scheduler.grid.port import Entry, EntryEvent, Grid, Map, Ownership, OwnershipEvent, Refused, Unknown

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tenure.scheduler.grid.memory.cluster import MemoryCluster

__all__ = ["MemoryGrid"]


class MemoryGrid(Grid):
    """A connection of one node or client; `paired` is its member's id.

    A call takes effect after one checkpoint, in the tick in which it returns. Only what is out of the ordinary
    (`_hindered` before the effect, `_guarded` after it) leaves the straight path.
    """

    def __init__(self, cluster: "MemoryCluster", side: Side, host: str) -> None:
        self.host = host
        self.partition_count = cluster.partition_count
        self.side = side
        self.paired: str | None = None
        self._cluster = cluster
        self._copies = side.copies
        self._ears = cluster.ears
        self._subscriptions: list[Subscription] = []
        self._watchers: list[Callable[[OwnershipEvent], None]] = []
        self._version = 0
        self._ownership: Ownership | None = None
        self._before_return: Callable[[], Awaitable[None]] | None = None
        self._thawed: trio.Event | None = None
        self._held: list[Callable[[], None]] = []
        self._killed = self._closed = False
        self._hindered = self._guarded = False

    # Single entries -------------------------------------------------------------------------------

    async def get(self, map: Map, partition: int, key: bytes, *, timeout_s: float | None = None) -> bytes | None:
        await checkpoint()
        if self._hindered:
            await self._enter(partition, timeout_s, write=False)
        value = self._copies[partition][0].entries[map].get(key)
        if self._guarded:
            await self._leave()
        return value

    async def get_all(
        self, map: Map, partition: int, keys: Sequence[bytes], *, timeout_s: float | None = None
    ) -> dict[bytes, bytes]:
        await checkpoint()
        if self._hindered:
            await self._enter(partition, timeout_s, write=False)
        entries = self._copies[partition][0].entries[map]
        values = {key: entries[key] for key in keys if key in entries}
        if self._guarded:
            await self._leave()
        return values

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
        await checkpoint()
        if self._hindered:
            await self._enter(partition, timeout_s, write=True)
        self._put(map, partition, key, value, ttl_s)
        if self._guarded:
            await self._leave()

    async def put_if_absent(
        self, map: Map, partition: int, key: bytes, value: bytes, *, timeout_s: float | None = None
    ) -> bytes | None:
        await checkpoint()
        if self._hindered:
            await self._enter(partition, timeout_s, write=True)
        there = self._copies[partition][0].entries[map].get(key)
        if there is None:
            self._put(map, partition, key, value)
        if self._guarded:
            await self._leave()
        return there

    async def replace_if_same(
        self, map: Map, partition: int, key: bytes, old: bytes, new: bytes, *, timeout_s: float | None = None
    ) -> bool:
        await checkpoint()
        if self._hindered:
            await self._enter(partition, timeout_s, write=True)
        same = self._copies[partition][0].entries[map].get(key) == old
        if same:
            self._put(map, partition, key, new)
        if self._guarded:
            await self._leave()
        return same

    async def delete(self, map: Map, partition: int, key: bytes, *, timeout_s: float | None = None) -> None:
        await checkpoint()
        if self._hindered:
            await self._enter(partition, timeout_s, write=True)
        self._drop(map, partition, key)
        if self._guarded:
            await self._leave()

    def discard(self, map: Map, partition: int, keys: Sequence[bytes]) -> None:
        if self._hindered and not self._may_discard(partition):
            return
        for key in keys:
            self._drop(map, partition, key)

    # One partition --------------------------------------------------------------------------------

    def scan(
        self, map: Map, partition: int, *, page: int = 100, timeout_s: float | None = None
    ) -> AsyncIterator[list[Entry]]:
        return _Scan(self, map, partition, page, timeout_s)

    async def _keys(self, map: Map, partition: int, timeout_s: float | None) -> list[bytes]:
        """What a scan will go through."""
        await checkpoint()
        if self._hindered:
            await self._enter(partition, timeout_s, write=False)
        return list(self._copies[partition][0].entries[map])

    # Hints ----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def listen(
        self,
        map: Map,
        on_entries: Callable[[list[EntryEvent]], None],
        *,
        key: tuple[int, bytes] | None = None,
    ) -> AsyncIterator[None]:
        subscription = self._subscription(map, on_entries, key)
        await checkpoint()
        self._subscriptions.append(subscription)
        self._ears.add(subscription)
        try:
            yield
        finally:
            subscription.close()
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
                self._ears.remove(subscription)

    def ownership(self) -> Ownership:
        if self._ownership is None:
            self._ownership = Ownership(self._version, *self.side.public(), self.paired)
        return self._ownership

    @asynccontextmanager
    async def watch_ownership(self, on_ownership: Callable[[OwnershipEvent], None]) -> AsyncIterator[None]:
        await checkpoint()
        self._watchers.append(on_ownership)
        try:
            yield
        finally:
            self._watchers.remove(on_ownership)

    # The end, and what a simulator does to a process ----------------------------------------------

    def close(self) -> None:
        """No more calls (they raise `trio.ClosedResourceError`), no more hints."""
        self._closed = True
        self._go()

    async def aclose(self) -> None:
        """As `close`, for `async with aclosing(...)`."""
        self.close()
        await checkpoint()

    def freeze(self) -> None:
        """As SIGSTOP of this connection's process: what was sent takes effect, nothing is heard or sent until `thaw`.

        Calls don't even see their cancellation: a frozen process runs none of its own deadlines.
        """
        if self._thawed is None:
            self._thawed = trio.Event()
            self.regard()

    def thaw(self) -> None:
        """As SIGCONT: everything that was held comes now."""
        if self._thawed is not None:
            self._thawed.set()
            self._thawed = None
            held, self._held = self._held, []
            for act in held:
                self.deliver(act)
            self.regard()

    def kill(self) -> None:
        """As SIGKILL: no call has any effect from here on, none returns. Cancel the tasks that made them."""
        self._killed = True
        self._go()
        self.thaw()

    @property
    def before_return(self) -> "Callable[[], Awaitable[None]] | None":
        """Awaited whenever a call is about to return or raise: where a simulator freezes or kills a node."""
        return self._before_return

    @before_return.setter
    def before_return(self, hook: "Callable[[], Awaitable[None]] | None") -> None:
        self._before_return = hook
        self.regard()

    # What the cluster tells its connections -------------------------------------------------------

    def pair(self, side: Side, member: str | None) -> None:
        """From now on this connection sees that side, and hears the entries of that member."""
        for subscription in self._subscriptions:
            self._ears.remove(subscription)
        before, self.paired = self.paired, member
        self.side = side
        self._copies = side.copies
        for subscription in self._subscriptions:
            self._ears.add(subscription)
        self.regard()
        if self._version and (before is None) != (member is None):
            self.notice(OwnershipEvent.DISCONNECTED if member is None else OwnershipEvent.RECONNECTED)

    def notice(self, event: OwnershipEvent) -> None:
        """Members or partitions changed."""
        self._see(event)

    def regard(self) -> None:
        """Take note of whether anything stands in the way of calls."""
        frozen = self._thawed is not None
        self._hindered = self._killed or self._closed or frozen or self.side.hindered
        self._guarded = self._killed or frozen or self._before_return is not None

    def deliver(self, act: Callable[[], None]) -> None:
        self._cluster.agenda.soon(lambda: self._arrive(act))

    def hears_partition(self, partition: int, primary: str) -> bool:
        row = self.side.rows[partition]
        return bool(row) and row[0] == primary

    def _see(self, event: OwnershipEvent) -> None:
        self._version += 1
        self._ownership = None
        if self._watchers:
            self.deliver(lambda: self._announce(event))

    def _announce(self, event: OwnershipEvent) -> None:
        for watcher in tuple(self._watchers):
            reported(partial(watcher, event))

    def _arrive(self, act: Callable[[], None]) -> None:
        if self._thawed is not None:
            self._held.append(act)
        elif not (self._killed or self._closed):
            act()

    def _go(self) -> None:
        for subscription in self._subscriptions:
            subscription.close()
            self._ears.remove(subscription)
        self._subscriptions.clear()
        if self in self._cluster.connections:
            self._cluster.connections.remove(self)
        self.regard()

    # The ways round -------------------------------------------------------------------------------

    def _subscription(
        self, map: Map, on_entries: Callable[[list[EntryEvent]], None], key: tuple[int, bytes] | None
    ) -> Subscription:
        return Subscription(self, map, on_entries, key)

    def _put(self, map: Map, partition: int, key: bytes, value: bytes, ttl_s: float | None = None) -> None:
        if ttl_s is None:
            for shard in self._copies[partition]:
                shard.put(map, key, value)
        else:
            due = trio.current_time() + ttl_s
            for shard in self._copies[partition]:
                shard.put(map, key, value, due)
            self._cluster.expire_later(map, partition, key, due)
        if map in self._ears.maps:
            self._ears.tell(map, partition, self.side.rows[partition][0], key, value)

    def _drop(self, map: Map, partition: int, key: bytes) -> None:
        copies = self._copies[partition]
        if key in copies[0].entries[map]:
            for shard in copies:
                shard.drop(map, key)
            if map in self._ears.maps:
                self._ears.tell(map, partition, self.side.rows[partition][0], key, None)

    def _may_discard(self, partition: int) -> bool:
        gone = self._killed or self._closed or self._thawed is not None
        return not (gone or self.side.refuses or self.side.is_stuck(partition, write=True))

    async def _enter(self, partition: int, timeout_s: float | None, *, write: bool) -> None:
        """Wait until the call can take effect; say so if that can't be, or not in time."""
        deadline = trio.current_time() + (self._cluster.default_timeout_s if timeout_s is None else timeout_s)
        while True:
            if self._killed:
                await trio.sleep_forever()
            if self._closed:
                raise trio.ClosedResourceError("this connection to the grid was closed")
            if self._thawed is not None:
                with trio.CancelScope(shield=True):
                    await self._thawed.wait()
                continue
            if self.side.refuses:
                await self._fail(Refused(f"split-brain protection: {len(self.side.members)} members are too few"))
            if not self.side.is_stuck(partition, write=write):
                return
            left_s = deadline - trio.current_time()
            if left_s <= 0:
                await self._fail(Unknown(f"no answer for partition {partition} within the deadline"))
            await trio.sleep(min(left_s, self._cluster.retry_pause_s))

    async def _fail(self, error: Exception) -> NoReturn:
        if self._guarded:
            await self._leave()
        raise error

    async def _leave(self) -> None:
        """Let the outcome of a call reach its process: perhaps late, perhaps never."""
        if self._before_return is not None:
            await self._before_return()
        while self._thawed is not None:
            with trio.CancelScope(shield=True):
                await self._thawed.wait()
        if self._killed:
            await trio.sleep_forever()


class _Scan(AsyncIterator[list[Entry]]):
    """The keys as they were at first, with the values as they are when their page is read."""

    def __init__(self, grid: MemoryGrid, map: Map, partition: int, page: int, timeout_s: float | None) -> None:
        self._grid = grid
        self._map = map
        self._partition = partition
        self._page = max(page, 1)
        self._timeout_s = timeout_s
        self._keys: list[bytes] | None = None
        self._next = 0

    async def __anext__(self) -> list[Entry]:
        if self._keys is None:
            self._keys = await self._grid._keys(self._map, self._partition, self._timeout_s)
        while self._next < len(self._keys):
            keys = self._keys[self._next : self._next + self._page]
            self._next += self._page
            values = await self._grid.get_all(self._map, self._partition, keys, timeout_s=self._timeout_s)
            if values:
                return [Entry(key, value) for key, value in values.items()]
        raise StopAsyncIteration

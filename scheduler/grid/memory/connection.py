"""What a connection to the memory grid is apart from its calls: its pairing, its hints, its process."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import checkpoint

from tenure.scheduler.grid.memory.side import Side
from tenure.scheduler.grid.memory.subscriptions import Subscription, reported
from tenure.scheduler.grid.port import EntryEvent, Grid, Map, Ownership, OwnershipEvent

if TYPE_CHECKING:
    from tenure.scheduler.grid.memory.cluster import MemoryCluster

__all__ = ["Connection"]


class Connection(Grid):
    """A connection of one node or client; `paired` is its member's id. A simulator can freeze and kill its process."""

    def __init__(self, cluster: "MemoryCluster", side: Side, host: str) -> None:
        self.host = host
        self.partition_count = cluster.partition_count
        self.side = side
        self.paired: str | None = None
        self.heard: frozenset[str | None] = frozenset({None})
        self._others: frozenset[str] = frozenset()
        self._cluster = cluster
        self._copies = side.copies
        self._ears = cluster.ears
        self._subscriptions: list[Subscription] = []
        self._watchers: list[Callable[[OwnershipEvent], None]] = []
        self._version = 0
        self._is_known = False
        self._ownership: Ownership | None = None
        self._before_return: Callable[[], Awaitable[None]] | None = None
        self._thawed: trio.Event | None = None
        self._held: list[Callable[[], None]] = []
        self._killed = self._closed = False
        self._hindered = self._guarded = False

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
    def before_return(self) -> Callable[[], Awaitable[None]] | None:
        """Awaited whenever a call is about to return or raise: where a simulator freezes or kills a node."""
        return self._before_return

    @before_return.setter
    def before_return(self, hook: Callable[[], Awaitable[None]] | None) -> None:
        self._before_return = hook
        self.regard()

    # Hints ----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def listen(
        self,
        map: Map,
        on_entries: Callable[[list[EntryEvent]], None],
        *,
        key: tuple[int, bytes] | None = None,
        removals: bool = True,
    ) -> AsyncIterator[None]:
        subscription = self._subscription(map, on_entries if removals else _without_removals(on_entries), key)
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

    def hear(self, members: frozenset[str]) -> None:
        news = members - self.heard
        self._hear(self.paired, members)
        if news:
            self.notice(OwnershipEvent.RECONNECTED)

    def _hear(self, paired: str | None, others: frozenset[str]) -> None:
        for subscription in self._subscriptions:
            self._ears.remove(subscription)
        self.paired, self._others = paired, others
        self.heard = others | {paired}
        for subscription in self._subscriptions:
            self._ears.add(subscription)

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

    # What the cluster tells its connections -------------------------------------------------------

    def pair(self, side: Side, member: str | None) -> None:
        """From now on this connection sees that side, and hears the entries of that member."""
        before = self.paired
        self._hear(member, self._others)
        self.side = side
        self._copies = side.copies
        self.regard()
        if (before is None) != (member is None) and self._is_known:
            self.notice(OwnershipEvent.DISCONNECTED if member is None else OwnershipEvent.RECONNECTED)
        self._is_known = True

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

    # What calls need ------------------------------------------------------------------------------

    def _subscription(
        self, map: Map, on_entries: Callable[[list[EntryEvent]], None], key: tuple[int, bytes] | None
    ) -> Subscription:
        return Subscription(self, map, on_entries, key)

    async def _sendable(self) -> None:
        """Wait until this connection's process runs: it may be frozen, or dead."""
        await self._hold()
        if self._killed:
            await trio.sleep_forever()
        if self._closed:
            raise trio.ClosedResourceError("this connection to the grid was closed")

    async def _leave(self) -> None:
        """Let the outcome of a call reach its process: perhaps late, perhaps never."""
        if self._before_return is not None:
            await self._before_return()
        await self._hold()
        if self._killed:
            await trio.sleep_forever()

    async def _hold(self) -> None:
        """While frozen, a process learns nothing: neither outcomes nor that its own deadlines have passed."""
        while self._thawed is not None:
            with trio.CancelScope(shield=True):
                await self._thawed.wait()


def _without_removals(on_entries: Callable[[list[EntryEvent]], None]) -> Callable[[list[EntryEvent]], None]:
    def told(events: list[EntryEvent]) -> None:
        if came := [event for event in events if event.value is not None]:
            on_entries(came)

    return told

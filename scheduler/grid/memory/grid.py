"""A connection to the memory grid: the direct way, where calls meet the data without anything between."""

from collections.abc import AsyncIterator, Mapping, Sequence

import trio
from trio.lowlevel import checkpoint

from tenure.scheduler.grid.memory.connection import Connection
from tenure.scheduler.grid.memory.shard import Shard
from tenure.scheduler.grid.memory.side import Side
from tenure.scheduler.grid.port import LIFETIMES_S, Entry, GridError, Map, Refused, Unknown

__all__ = ["MemoryGrid"]


class MemoryGrid(Connection):
    """A connection whose calls meet the data with nothing between.

    A call takes effect after one checkpoint, in the tick in which it returns. Only what is out of the ordinary
    (`_hindered` before the effect, `_guarded` after it) leaves the straight path.
    """

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
        self._put(self.side, self._copies[partition], map, partition, key, value, ttl_s)
        if self._guarded:
            await self._leave()

    async def set_together(
        self, map: Map, partition: int, entries: Mapping[bytes, bytes], *, timeout_s: float | None = None
    ) -> None:
        await checkpoint()
        if self._hindered:
            await self._enter(partition, timeout_s, write=True)
        for key, value in entries.items():
            self._put(self.side, self._copies[partition], map, partition, key, value, LIFETIMES_S.get(map))
        if self._guarded:
            await self._leave()

    async def put_if_absent(
        self, map: Map, partition: int, key: bytes, value: bytes, *, timeout_s: float | None = None
    ) -> bytes | None:
        await checkpoint()
        if self._hindered:
            await self._enter(partition, timeout_s, write=True)
        there = self._put_if_absent(self.side, self._copies[partition], map, partition, key, value)
        if self._guarded:
            await self._leave()
        return there

    async def replace_if_same(
        self, map: Map, partition: int, key: bytes, old: bytes, new: bytes, *, timeout_s: float | None = None
    ) -> bool:
        await checkpoint()
        if self._hindered:
            await self._enter(partition, timeout_s, write=True)
        same = self._replace_if_same(self.side, self._copies[partition], map, partition, key, old, new)
        if self._guarded:
            await self._leave()
        return same

    async def remove_if_same(
        self, map: Map, partition: int, key: bytes, old: bytes, *, timeout_s: float | None = None
    ) -> bool:
        await checkpoint()
        if self._hindered:
            await self._enter(partition, timeout_s, write=True)
        same = self._remove_if_same(self.side, self._copies[partition], map, partition, key, old)
        if self._guarded:
            await self._leave()
        return same

    async def delete(self, map: Map, partition: int, key: bytes, *, timeout_s: float | None = None) -> None:
        await checkpoint()
        if self._hindered:
            await self._enter(partition, timeout_s, write=True)
        self._drop(self.side, self._copies[partition], map, partition, key)
        if self._guarded:
            await self._leave()

    def discard(self, map: Map, partition: int, keys: Sequence[bytes]) -> None:
        if self._hindered and not self._may_discard(partition):
            return
        copies = self._copies[partition]
        for key in keys:
            self._drop(self.side, copies, map, partition, key)

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
        keys = list(self._copies[partition][0].entries[map])
        if self._guarded:
            await self._leave()
        return keys

    async def _page(self, map: Map, partition: int, keys: Sequence[bytes], timeout_s: float | None) -> list[Entry]:
        """What is there now of `keys`."""
        values = await self.get_all(map, partition, keys, timeout_s=timeout_s)
        return [Entry(key, value) for key, value in values.items()]

    # Effects --------------------------------------------------------------------------------------
    # At one instant, on the copies of a partition, the primary's first.

    def _put(
        self,
        side: Side,
        copies: Sequence[Shard],
        map: Map,
        partition: int,
        key: bytes,
        value: bytes,
        ttl_s: float | None = None,
    ) -> None:
        due = None if ttl_s is None else trio.current_time() + ttl_s
        for shard in copies:
            shard.put(map, key, value, due)
        if due is not None:
            self._cluster.expire_later(map, partition, key, due)
        if map in self._ears.maps:
            self._ears.tell(map, partition, side.rows[partition][0], key, value)

    def _put_if_absent(
        self, side: Side, copies: Sequence[Shard], map: Map, partition: int, key: bytes, value: bytes
    ) -> bytes | None:
        there = copies[0].entries[map].get(key)
        if there is None:
            self._put(side, copies, map, partition, key, value)
        return there

    def _replace_if_same(
        self, side: Side, copies: Sequence[Shard], map: Map, partition: int, key: bytes, old: bytes, new: bytes
    ) -> bool:
        same = copies[0].entries[map].get(key) == old
        if same:
            self._put(side, copies, map, partition, key, new)
        return same

    def _remove_if_same(
        self, side: Side, copies: Sequence[Shard], map: Map, partition: int, key: bytes, old: bytes
    ) -> bool:
        same = copies[0].entries[map].get(key) == old
        if same:
            self._drop(side, copies, map, partition, key)
        return same

    def _drop(self, side: Side, copies: Sequence[Shard], map: Map, partition: int, key: bytes) -> None:
        if key in copies[0].entries[map]:
            for shard in copies:
                shard.drop(map, key)
            if map in self._ears.maps:
                self._ears.tell(map, partition, side.rows[partition][0], key, None)

    def _may_discard(self, partition: int) -> bool:
        gone = self._killed or self._closed or self._thawed is not None
        return not (gone or self.side.refuses or self.side.is_stuck(partition, write=True))

    async def _enter(self, partition: int, timeout_s: float | None, *, write: bool) -> None:
        """Wait until the call can take effect; say so if that can't be, or not in time."""
        await self._sendable()
        try:
            await self._reach(partition, self._deadline(timeout_s), write=write)
        except GridError:
            if self._guarded:
                await self._leave()
            raise
        except trio.Cancelled:
            await self._hold()
            raise

    def _deadline(self, timeout_s: float | None) -> float:
        return trio.current_time() + (self._cluster.default_timeout_s if timeout_s is None else timeout_s)

    async def _reach(self, partition: int, deadline: float, *, write: bool) -> None:
        """Wait for the members that this call needs."""
        while True:
            if self._closed:
                raise trio.ClosedResourceError("this connection to the grid was closed")
            if self.side.refuses:
                raise Refused(f"split-brain protection: {len(self.side.members)} members are too few")
            if not self._is_stuck(partition, write=write):
                return
            left_s = deadline - trio.current_time()
            if left_s <= 0:
                raise Unknown(f"no answer for partition {partition} within the deadline")
            await trio.sleep(min(left_s, self._cluster.retry_pause_s))

    def _is_stuck(self, partition: int, *, write: bool) -> bool:
        return self.side.is_stuck(partition, write=write)


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
            entries = await self._grid._page(self._map, self._partition, keys, self._timeout_s)
            if entries:
                return entries
        raise StopAsyncIteration

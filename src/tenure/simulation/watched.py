"""A faulty memory grid that is watched at its port: who wrote and was told what, and where to strike.

What is seen here is all that the journal's checker needs, so it knows nothing of the engine.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import trio

from tenure.scheduler.grid.memory import FaultyCluster, FaultyGrid
from tenure.scheduler.grid.memory.shard import Shard
from tenure.scheduler.grid.memory.side import Side
from tenure.scheduler.grid.port import Map

__all__ = ["Ambush", "Watcher", "WatchedCluster", "WatchedGrid"]


class Watcher:
    """Told of the journal's life. Each method is called at the very moment."""

    def written(self, writer: str, partition: int, key: bytes, value: bytes) -> None:
        """A journal slot has taken a new value on its primary."""

    def acknowledged(self, writer: str, partition: int, key: bytes, value: bytes) -> None:
        """The writer was told that its value is there, with its backups."""


class Ambush(NamedTuple):
    """Strike a process at an await: after `passing` calls that fit, before or after the next one's effect."""

    map: Map | None
    before: bool
    strike: Callable[[], None]


class WatchedCluster(FaultyCluster):
    """Makes watched connections."""

    watcher: Watcher

    def _new_grid(self, side: Side, host: str) -> "WatchedGrid":
        return WatchedGrid(self, side, host)

    def journal(self, partition: int) -> dict[bytes, bytes]:
        """The raw slots, as the primary holds them."""
        return self.sides[0].copies[partition][0].entries[Map.JOURNAL]

    def inbox(self, partition: int) -> dict[bytes, bytes]:
        """The raw lane slots, as the primary holds them."""
        return self.sides[0].copies[partition][0].entries[Map.INBOX]


class WatchedGrid(FaultyGrid):
    """One process's connection."""

    owner = ""
    """The process that it belongs to."""
    calls = 0

    def __init__(self, cluster: WatchedCluster, side: Side, host: str) -> None:
        super().__init__(cluster, side, host)
        self.watcher = cluster.watcher
        self._ambush: Ambush | None = None
        self._passing = 0

    def lie_in_wait(self, ambush: Ambush | None, passing: int = 0) -> None:
        """Set (or lift) an ambush: it strikes once, after `passing` calls that fit."""
        self._ambush, self._passing = ambush, passing

    async def get(self, map: Map, partition: int, key: bytes, *, timeout_s: float | None = None) -> bytes | None:
        return await self._watched(map, super().get(map, partition, key, timeout_s=timeout_s))

    async def get_all(
        self, map: Map, partition: int, keys: Sequence[bytes], *, timeout_s: float | None = None
    ) -> dict[bytes, bytes]:
        return await self._watched(map, super().get_all(map, partition, keys, timeout_s=timeout_s))

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
        await self._watched(map, super().set(map, partition, key, value, ttl_s=ttl_s, timeout_s=timeout_s))
        if map is Map.JOURNAL:
            self.watcher.acknowledged(self.owner, partition, key, value)

    async def put_if_absent(
        self, map: Map, partition: int, key: bytes, value: bytes, *, timeout_s: float | None = None
    ) -> bytes | None:
        there = await self._watched(map, super().put_if_absent(map, partition, key, value, timeout_s=timeout_s))
        if map is Map.JOURNAL and there is None:
            self.watcher.acknowledged(self.owner, partition, key, value)
        return there

    async def replace_if_same(
        self, map: Map, partition: int, key: bytes, old: bytes, new: bytes, *, timeout_s: float | None = None
    ) -> bool:
        done = await self._watched(map, super().replace_if_same(map, partition, key, old, new, timeout_s=timeout_s))
        if map is Map.JOURNAL and done:
            self.watcher.acknowledged(self.owner, partition, key, new)
        return done

    async def _watched(self, map: Map, call: Awaitable[Any]) -> Any:
        if self._ambush is None:
            return await call
        return await self._ambushed(map, call)

    async def _ambushed(self, map: Map, call: Awaitable[Any]) -> Any:
        ambush = self._ambush
        if ambush is None or ambush.map not in (None, map):
            return await call
        if self._passing:
            self._passing -= 1
            return await call
        self._ambush = None
        if ambush.before:
            ambush.strike()
            await self._leave()
            return await call
        try:
            return await call
        finally:
            ambush.strike()
            with trio.CancelScope(shield=True):
                await self._hold()

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
        if map is Map.JOURNAL and copies[0].entries[map].get(key) != value:
            self.watcher.written(self.owner, partition, key, value)
        super()._put(side, copies, map, partition, key, value, ttl_s)

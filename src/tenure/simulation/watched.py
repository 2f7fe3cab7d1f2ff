"""A faulty memory grid that is watched at its port: who wrote and was told what, and where to strike.

What is seen here is all that the journal's checker needs, so it knows nothing of the engine.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tenure.scheduler.cluster import MARKER, Cluster
from tenure.scheduler.grid.memory import Fault, FaultyCluster, FaultyGrid
from tenure.scheduler.grid.memory.shard import Shard
from tenure.scheduler.grid.memory.side import Side
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.keys import HEAD
from tenure.scheduler.wire import Head, decode

__all__ = ["Ambush", "Call", "WatchedCluster", "WatchedGrid", "Watcher"]


class Watcher:
    """Told of the journal's life. Each method is called at the very moment."""

    def written(self, writer: str, partition: int, key: bytes, value: bytes) -> None:
        """A journal slot has taken a new value on its primary."""

    def acknowledged(self, writer: str, partition: int, key: bytes, value: bytes) -> None:
        """The writer was told that its value is there, with its backups."""


class Call(NamedTuple):
    """One grid call, as an ambush sees it."""

    map: Map | None
    """None for a scan."""
    partition: int
    writes: bool
    result: Any = None
    """Known when a call returns."""


class Ambush(NamedTuple):
    """Strike a process at an await of its: as a call that fits is made, or (`returning`) as it returns."""

    fits: Callable[[Call], bool]
    returning: bool
    strike: Callable[[], None]


class WatchedCluster(FaultyCluster):
    """Makes watched connections."""

    watcher: Watcher
    probed: list[Callable[[str, int, bytes], None]]
    """Called as an owner proves that a slot of an inbox is empty, with its name, the partition and the key."""

    def _new_grid(self, side: Side, host: str) -> "WatchedGrid":
        return WatchedGrid(self, side, host)

    def journal(self, partition: int) -> dict[bytes, bytes]:
        """The raw slots, as the primary holds them."""
        return self.sides[0].copies[partition][0].entries[Map.JOURNAL]

    def journal_length(self, partition: int) -> int:
        """How many slots there are from the first one that counts to the next one to be written."""
        stored = self.sides[0].copies[partition][0].entries[Map.HEADS].get(HEAD)
        first = 0 if stored is None else decode(stored, Head).first
        return max(map(_number, self.journal(partition)), default=-1) + 1 - first

    def marker(self) -> Cluster:
        """What the cluster's marker says, as the primary holds it."""
        return decode(self.sides[0].copies[0][0].entries[Map.NODES][MARKER], Cluster)

    def defined(self) -> set[str]:
        """The ids of jobs that anything is stored of in the map of definitions, as the primaries hold it."""
        copies = self.sides[0].copies
        return {key.decode() for p in range(self.partition_count) for key in copies[p][0].entries[Map.JOBS]}

    def inbox(self, partition: int) -> dict[bytes, bytes]:
        """The raw lane slots, as the primary holds them."""
        return self.sides[0].copies[partition][0].entries[Map.INBOX]


class WatchedGrid(FaultyGrid):
    """One process's connection."""

    owner = ""
    """The process that it belongs to."""

    def __init__(self, cluster: WatchedCluster, side: Side, host: str) -> None:
        super().__init__(cluster, side, host)
        self.watched, self.watcher = cluster, cluster.watcher
        self.ambush: Ambush | None = None
        """Set one, and it strikes once."""
        self.weakens: Callable[[int], None] | None = None
        """Set it, and the next change of a definition reaches its primary alone; it is called when that is in doubt."""
        self.weak_at: int | None = None
        """The partition whose next new journal record will reach its primary alone."""

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
        await super().set(map, partition, key, value, ttl_s=ttl_s, timeout_s=timeout_s)
        if map is Map.JOURNAL:
            self.watcher.acknowledged(self.owner, partition, key, value)

    async def put_if_absent(
        self, map: Map, partition: int, key: bytes, value: bytes, *, timeout_s: float | None = None
    ) -> bytes | None:
        if self.weak_at == partition and map is Map.JOURNAL:
            self.weak_at = None
            self.cluster.faults.once(Fault.WEAK, map=map, partition=partition, connection=self)
        if map is Map.INBOX:
            for probed in self.watched.probed:
                probed(self.owner, partition, key)
        there = await super().put_if_absent(map, partition, key, value, timeout_s=timeout_s)
        if map is Map.JOURNAL and there is None:
            self.watcher.acknowledged(self.owner, partition, key, value)
        return there

    async def replace_if_same(
        self, map: Map, partition: int, key: bytes, old: bytes, new: bytes, *, timeout_s: float | None = None
    ) -> bool:
        if map is Map.JOBS and old != new and self.weakens is not None:
            return await self._weakly(partition, partial(super().replace_if_same, map, partition, key, old, new))
        done = await super().replace_if_same(map, partition, key, old, new, timeout_s=timeout_s)
        if map is Map.JOURNAL and done:
            self.watcher.acknowledged(self.owner, partition, key, new)
        return done

    async def _weakly(self, partition: int, change: Callable[[], Awaitable[bool]]) -> bool:
        weakens, self.weakens = self.weakens, None
        self.cluster.faults.once(Fault.WEAK, map=Map.JOBS, partition=partition, connection=self)
        try:
            return await change()
        except GridError:
            if weakens is not None:
                weakens(partition)
            raise

    async def _call(self, partition: int, timeout_s: float | None, act: Callable[[int, float], Awaitable[Any]]) -> Any:
        if self.ambush is None:
            return await super()._call(partition, timeout_s, act)
        return await self._ambushed(partition, timeout_s, act)

    async def _ambushed(
        self, partition: int, timeout_s: float | None, act: Callable[[int, float], Awaitable[Any]]
    ) -> Any:
        map, writes = _what(act)
        ambush = self.ambush
        if ambush is not None and not ambush.returning and ambush.fits(Call(map, partition, writes)):
            self.ambush = None
            ambush.strike()
        result = await super()._call(partition, timeout_s, act)
        ambush = self.ambush
        if ambush is not None and ambush.returning and ambush.fits(Call(map, partition, writes, result)):
            self.ambush = None
            ambush.strike()
            await self._leave()
        return result

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


def _number(key: bytes) -> int:
    return int.from_bytes(key, "big")


def _what(act: Callable[..., Any]) -> tuple[Map | None, bool]:
    """The map that a call is about, and whether it writes."""
    if isinstance(act, partial):
        return act.args[0], act.func.__name__ == "_write"
    return None, False

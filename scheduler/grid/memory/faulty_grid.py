"""A connection to the memory grid whose calls meet every hazard that a real grid has."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from tenure.scheduler.grid.memory.faults import DISCARDS, READS, SCANS, WRITES, Fault
from tenure.scheduler.grid.memory.faulty_connection import FaultyConnection
from tenure.scheduler.grid.memory.grid import MemoryGrid
from tenure.scheduler.grid.memory.passage import Effect, Passage
from tenure.scheduler.grid.memory.shard import Shard
from tenure.scheduler.grid.memory.side import Side
from tenure.scheduler.grid.port import (
    LIFETIMES_S,
    Entry,
    GridError,
    Map,
    Refused,
    Unknown,
)

if TYPE_CHECKING:
    from tenure.scheduler.grid.memory.faulty_cluster import FaultyCluster

__all__ = ["FaultyGrid"]

T = TypeVar("T")


class FaultyGrid(FaultyConnection, MemoryGrid):
    """A call goes there, takes effect, and comes back, each of which may go wrong.

    Whether the time of a call passes before its effect or after it is drawn at random, so that whoever freezes,
    kills or cancels a caller meets both.
    """

    def __init__(self, cluster: "FaultyCluster", side: Side, host: str) -> None:
        super().__init__(cluster, side, host)
        self._passage = Passage(self)

    async def get(self, map: Map, partition: int, key: bytes, *, timeout_s: float | None = None) -> bytes | None:
        values = await self._call(partition, timeout_s, partial(self._read, map, [key]))
        return values.get(key)

    async def get_all(
        self, map: Map, partition: int, keys: Sequence[bytes], *, timeout_s: float | None = None
    ) -> dict[bytes, bytes]:
        return await self._call(partition, timeout_s, partial(self._read, map, keys))

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
        def effect(side: Side, copies: Sequence[Shard]) -> None:
            self._put(side, copies, map, partition, key, value, ttl_s)

        return await self._call(partition, timeout_s, partial(self._write, map, key, effect))

    async def set_together(
        self, map: Map, partition: int, entries: Mapping[bytes, bytes], *, timeout_s: float | None = None
    ) -> None:
        if not entries:
            return None

        def effect(side: Side, copies: Sequence[Shard]) -> None:
            for key, value in entries.items():
                self._put(side, copies, map, partition, key, value, LIFETIMES_S.get(map))

        return await self._call(partition, timeout_s, partial(self._write, map, next(iter(entries)), effect))

    async def put_if_absent(
        self, map: Map, partition: int, key: bytes, value: bytes, *, timeout_s: float | None = None
    ) -> bytes | None:
        def effect(side: Side, copies: Sequence[Shard]) -> bytes | None:
            return self._put_if_absent(side, copies, map, partition, key, value)

        def taken(side: Side, copies: Sequence[Shard]) -> bytes | None:
            """The answer of a member that has not heard that the entry is gone, or is another."""
            there, then = copies[0].entries[map].get(key), self.cluster.before(map, partition, key)[1]
            if then is None or then == there:
                return effect(side, copies)
            self.cluster.faults.happened(Fault.STALE_TAKEN)
            return then

        return await self._call(partition, timeout_s, partial(self._write, map, key, effect, taken=taken))

    async def replace_if_same(
        self, map: Map, partition: int, key: bytes, old: bytes, new: bytes, *, timeout_s: float | None = None
    ) -> bool:
        def effect(side: Side, copies: Sequence[Shard]) -> bool:
            return self._replace_if_same(side, copies, map, partition, key, old, new)

        return await self._call(partition, timeout_s, partial(self._write, map, key, effect))

    async def remove_if_same(
        self, map: Map, partition: int, key: bytes, old: bytes, *, timeout_s: float | None = None
    ) -> bool:
        def effect(side: Side, copies: Sequence[Shard]) -> bool:
            return self._remove_if_same(side, copies, map, partition, key, old)

        return await self._call(partition, timeout_s, partial(self._write, map, key, effect))

    async def delete(self, map: Map, partition: int, key: bytes, *, timeout_s: float | None = None) -> None:
        def effect(side: Side, copies: Sequence[Shard]) -> None:
            self._drop(side, copies, map, partition, key)

        return await self._call(partition, timeout_s, partial(self._write, map, key, effect))

    def discard(self, map: Map, partition: int, keys: Sequence[bytes]) -> None:
        if self._killed or self._closed or self._thawed is not None or not keys:
            return

        def effect(side: Side, copies: Sequence[Shard]) -> None:
            for key in keys:
                self._drop(side, copies, map, partition, key)

        if self._strike(DISCARDS, map, partition) is not None:
            self.cluster.faults.happened(Fault.DISCARD_LOST)
        else:
            self._passage.land_after(self._passage.latency_s(), partition, effect, late=False)

    async def _keys(self, map: Map, partition: int, timeout_s: float | None) -> list[bytes]:
        async def keys(partition: int, deadline: float) -> list[bytes]:
            await self._scanned(map, partition, deadline)
            return list(self._copies[partition][0].entries[map])

        return await self._call(partition, timeout_s, keys)

    async def _page(self, map: Map, partition: int, keys: Sequence[bytes], timeout_s: float | None) -> list[Entry]:
        async def page(partition: int, deadline: float) -> list[Entry]:
            short = await self._scanned(map, partition, deadline)
            entries = self._copies[partition][0].entries[map]
            found = [Entry(key, entries[key]) for key in keys if key in entries]
            if short and found:
                self.cluster.faults.happened(Fault.SHORT_SCAN)
                del found[self.cluster.random.randrange(len(found)) :]
            return found

        return await self._call(partition, timeout_s, page)

    async def _call(self, partition: int, timeout_s: float | None, act: Callable[[int, float], Awaitable[T]]) -> T:
        if self._hindered:
            await self._sendable()
        try:
            result = await act(partition, self._deadline(timeout_s))
        except GridError:
            if self._guarded:
                await self._leave()
            raise
        except trio.Cancelled:
            await self._hold()
            raise
        if self._guarded:
            await self._leave()
        return result

    async def _read(self, map: Map, keys: Sequence[bytes], partition: int, deadline: float) -> dict[bytes, bytes]:
        fault = self._strike(READS, map, partition)
        before = self.cluster.random.random() < 0.5
        await self._pass(partition, deadline, fault, before=before)
        entries = self._copies[partition][0].entries[map]
        values = {key: entries[key] for key in keys if key in entries}
        if fault is Fault.ABSENT:
            self._forget_some(values)
        elif fault is Fault.STALE:
            self._turn_back(map, partition, keys, values)
        if not before:
            await self._pass(partition, deadline, None, before=True)
        return values

    async def _scanned(self, map: Map, partition: int, deadline: float) -> bool:
        """Pass to where a scan reads its next page. True if the page is to be short."""
        fault = self._strike(SCANS, map, partition)
        await self._pass(partition, deadline, fault, before=True)
        return fault is Fault.SHORT_SCAN

    async def _pass(self, partition: int, deadline: float, fault: Fault | None, *, before: bool) -> None:
        """Let the time of a read pass, and end it here if it fails."""
        faults = self.cluster.faults
        if fault is Fault.BLOCKED:
            faults.happened(fault)
            await self._passage.end_blocked(deadline)
        if fault is Fault.SLOW:
            faults.happened(fault)
            await self._passage.until(self._passage.slow_until(), deadline)
        elif before:
            await self._passage.travel(deadline)
        if fault is Fault.READ_FAILED:
            faults.happened(fault)
            raise Unknown("a read failed")
        await self._reach(partition, deadline, write=False)

    async def _write(
        self,
        map: Map,
        key: bytes,
        effect: Effect[T],
        partition: int,
        deadline: float,
        *,
        taken: Effect[T] | None = None,
    ) -> T:
        cluster = self.cluster
        faults, rng = cluster.faults, cluster.random
        fault = self._strike(WRITES, map, partition)
        if fault is None:
            if rng.random() < 0.5:
                return await self._effected(map, key, effect, partition, deadline)
            await self._passage.unless_abandoned(partition, effect, self._passage.travel(deadline))
            return await self._effected(map, key, effect, partition, deadline, returns=True)
        if fault is Fault.STALE_TAKEN:
            return await self._effected(map, key, taken or effect, partition, deadline)
        if fault is Fault.WEAK:
            return await self._effected(map, key, effect, partition, deadline, weak=True)
        if fault is Fault.SLOW:
            faults.happened(fault)
            arrives = self._passage.slow_until()
            if arrives < deadline:
                await self._passage.unless_abandoned(partition, effect, self._passage.until(arrives, deadline))
                return await self._effected(map, key, effect, partition, deadline)
            self._passage.land_after(arrives - trio.current_time(), partition, effect)
            await self._passage.end_blocked(deadline)
        if fault is Fault.APPLIED_UNKNOWN:
            await self._effected(map, key, effect, partition, deadline)
        elif fault is Fault.LATE_UNKNOWN:
            self._passage.land_after(self._passage.late_s(), partition, effect)
        elif fault is Fault.BLOCKED and rng.random() < 0.67:
            self._passage.land_after(rng.choice((self._passage.latency_s(), self._passage.late_s())), partition, effect)
        faults.happened(fault)
        if fault is Fault.BLOCKED:
            await self._passage.end_blocked(deadline)
        await cluster.agenda.sleep_until(min(cluster.tick(trio.current_time() + self._passage.latency_s()), deadline))
        if fault is Fault.REFUSED:
            raise Refused("the grid refused this call")
        raise Unknown(f"the outcome of this write to partition {partition} is lost")

    async def _effected(
        self,
        map: Map,
        key: bytes,
        effect: Effect[T],
        partition: int,
        deadline: float,
        *,
        weak: bool = False,
        returns: bool = False,
    ) -> T:
        """Apply a write as soon as its primary can be reached, and wait for its backups."""
        cluster = self.cluster
        await self._passage.unless_abandoned(partition, effect, self._reach(partition, deadline, write=False))
        side = self.side
        copies = side.copies[partition]
        reached = copies[:1] if weak else cluster.reachable_copies(side, partition)
        was = copies[0].entries[map].get(key)
        result = effect(side, reached)
        # The same value written again may be the same object: what tells a write from a refusal is its answer.
        is_there = copies[0].entries[map].get(key) is not None
        applied = result is True or (result is None and (is_there or was is not None))
        if applied and len(reached) < len(copies):
            cluster.faults.happened(Fault.WEAK)
            cluster.weaken(map, partition, key)
            if cluster.faults.fail_on_indeterminate:
                waits_until = min(deadline, trio.current_time() + cluster.faults.backup_wait_s)
                await cluster.agenda.sleep_until(waits_until)
                raise Unknown(f"applied, but no backup of partition {partition} is known to hold it")
        if not returns:
            await self._passage.travel(deadline)
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
        self.cluster.remember(map, partition, key, copies[0].entries[map].get(key))
        super()._put(side, copies, map, partition, key, value, ttl_s)

    def _drop(self, side: Side, copies: Sequence[Shard], map: Map, partition: int, key: bytes) -> None:
        self.cluster.remember(map, partition, key, copies[0].entries[map].get(key))
        super()._drop(side, copies, map, partition, key)

    def _is_stuck(self, partition: int, *, write: bool) -> bool:
        return self.is_cut or self.cluster.is_blocked(self.side, partition)

    def _strike(self, group: tuple[Fault, ...], map: Map, partition: int) -> Fault | None:
        cluster = self.cluster
        trouble = cluster.in_trouble(partition)
        return cluster.faults.strike(
            group, cluster.random, trouble=trouble, map=map, partition=partition, connection=self
        )

    def _forget_some(self, values: dict[bytes, bytes]) -> None:
        for key in list(values):
            if len(values) == 1 or self.cluster.random.random() < 0.5:
                del values[key]
                self.cluster.faults.happened(Fault.ABSENT)

    def _turn_back(self, map: Map, partition: int, keys: Sequence[bytes], values: dict[bytes, bytes]) -> None:
        for key in keys:
            changed, then = self.cluster.before(map, partition, key)
            if changed and then != values.get(key):
                self.cluster.faults.happened(Fault.STALE)
                if then is None:
                    values.pop(key, None)
                else:
                    values[key] = then

"""The types of jobs, as a client has looked them up: with them it refuses messages that do not fit, here and now."""

import math
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.errors import TenureError
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.jobtype import JobType
from tenure.scheduler.keys import checked_address, partition_of
from tenure.scheduler.wire import Definition, decode

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient

__all__ = ["KnownTypes"]

KNOWN_MAX = 100_000
REFRESH_S, KNOWN_S = 15.0, 30.0
"""A job may be made anew under another type. What was looked up so long ago is looked up again, first beside what goes
on, then before anything is sent."""


class KnownTypes:
    """Those that one client knows."""

    def __init__(self, client: "GridClient", nursery: trio.Nursery) -> None:
        self.client, self.grid, self._nursery = client, client.grid, nursery
        self.by_job: dict[str, JobType | None] = {}
        """None: it is not registered here"""
        self._asked_s: dict[str, float] = {}
        self._refreshing: set[str] = set()

    def check_anything(self) -> bool:
        """Is any job type known here that would refuse some message?"""
        return self.client.registry.is_choosy

    async def learn(self, ids: Iterable[str]) -> None:
        """Look up the types of jobs that messages are for, so that wrong ones are refused here and now."""
        asked, refresh_s = self._asked_s.get, trio.current_time() - REFRESH_S
        old = [id for id in ids if asked(id, -math.inf) < refresh_s]
        if not old:
            return
        unknown = [id for id in old if asked(id, -math.inf) < refresh_s + REFRESH_S - KNOWN_S]
        if len(self._asked_s) + len(unknown) > KNOWN_MAX:
            self.by_job.clear()
            self._asked_s.clear()
        if soon := {id for id in old if id not in self._refreshing}.difference(unknown):
            self._refreshing |= soon
            self._nursery.start_soon(self._refresh, soon)
        if unknown:
            await self._learn(unknown)

    async def _refresh(self, ids: set[str]) -> None:
        try:
            await self._learn(ids)
        finally:
            self._refreshing -= ids

    async def _learn(self, ids: Collection[str]) -> None:
        by_partition: dict[int, list[str]] = {}
        for id in ids:
            by_partition.setdefault(partition_of(checked_address(id), self.client.partition_count), []).append(id)
        async with trio.open_nursery() as nursery:
            for partition, some in by_partition.items():
                nursery.start_soon(self._learn_some, partition, some)

    async def _learn_some(self, partition: int, ids: list[str]) -> None:
        now_s = trio.current_time()
        try:
            found = await self.grid.get_all(Map.JOBS, partition, [id.encode() for id in ids])
            for id in ids:
                self._hear(id, found.get(id.encode()), now_s)
        except (GridError, TenureError):
            pass  # checked by the owner again, who makes a dead letter of what does not fit

    def _hear(self, id: str, stored: bytes | None, now_s: float) -> None:
        self.forget(id)
        # Who is not there (yet) is looked up again next time.
        if stored is not None and (definition := decode(stored, Definition)).wanted != "removed":
            self.by_job[id] = self.client.registry.get(definition.type)
            self._asked_s[id] = now_s

    async def ask_again(self, ids: Iterable[str]) -> None:
        """Something does not fit these jobs as far as they are known: look for certain. What can't be known now is
        left to its owner."""
        for id in ids:
            partition, key, now_s = partition_of(id, self.client.partition_count), id.encode(), trio.current_time()
            self.forget(id)
            try:
                stored = await self.grid.get(Map.JOBS, partition, key)
                # A read may be out of date, a conditional write is not.
                if stored is not None and await self.grid.replace_if_same(Map.JOBS, partition, key, stored, stored):
                    self._hear(id, stored, now_s)
            except (GridError, TenureError):
                pass

    def forget(self, id: str) -> None:
        """The job's definition has changed."""
        self.by_job.pop(id, None)
        self._asked_s.pop(id, None)

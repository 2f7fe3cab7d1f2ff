"""What a node does for each of its partitions it does not do for all of them at once."""

import itertools
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import trio

from tenure.listeners import listening
from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.grid.memory import Faults, FaultyCluster, FaultyGrid
from tenure.scheduler.grid.port import Entry, Map
from tenure.scheduler.host import FIRST_SWEEPS_AT_ONCE, LARGE_IMAGES_AT_ONCE, Host
from tenure.scheduler.imaging import Imaging
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.journal import LARGE_BYTES, Journal
from tenure.scheduler.node import Node
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.wire import JobRecord, Status

PARTITIONS = 271
FORMATION = "f"


def now_ms() -> int:
    return round(trio.current_time() * 1000)


def journal_of(
    grid: FaultyGrid, partition: int, *, formation: str = FORMATION, settings: NodeSettings | None = None
) -> Journal:
    ids = itertools.count()
    return Journal(
        grid,
        partition,
        formation=formation,
        settings=settings or NodeSettings(),
        new_id=lambda: f"{partition}.{next(ids)}",
        random=Random(0),
        report=print,
    )


def images_are_due_after(partition: int, settings: NodeSettings) -> int:
    """So many slots of a few bytes each."""
    journal = journal_of(FaultyCluster(faults=Faults(), partitions=PARTITIONS).connect(), partition, settings=settings)
    images = Imaging(journal)
    while not images.is_due():
        journal.slot += 1
    return journal.slot


async def test_partitions_that_were_opened_together_do_not_write_their_images_together() -> None:
    settings = NodeSettings()
    slots = [images_are_due_after(partition, settings) for partition in range(PARTITIONS)]
    most = settings.image_journal_slots_max
    assert most * 2 / 3 <= min(slots) <= max(slots) <= most + 1
    at_once = Counter(n // 16 for n in slots)
    assert max(at_once.values()) <= 1.2 * PARTITIONS * 16 / (most / 3)


class Watched:
    """A grid, and how many partitions read from a map at once."""

    def __init__(self, grid: FaultyGrid, map: Map) -> None:
        self.grid, self.map = grid, map
        self.most = 0
        self.all_read = trio.Event()
        self._reading: set[int] = set()
        self._read: set[int] = set()
        self._scan, self._get_all = grid.scan, grid.get_all
        grid.scan, grid.get_all = self.scan, self.get_all  # type: ignore[method-assign,assignment]

    @asynccontextmanager
    async def reading(self, partition: int) -> AsyncIterator[None]:
        self._reading.add(partition)
        self.most = max(self.most, len(self._reading))
        try:
            await trio.sleep(0.05)
            yield
            self._read.add(partition)
            if len(self._read) == PARTITIONS:
                self.all_read.set()
        finally:
            self._reading.discard(partition)

    def scan(self, map: Map, partition: int, *args: Any, **kwargs: Any) -> AsyncIterator[list[Entry]]:
        pages = self._scan(map, partition, *args, **kwargs)
        return self._watched(pages, partition) if map is self.map else pages

    async def _watched(self, pages: AsyncIterator[list[Entry]], partition: int) -> AsyncIterator[list[Entry]]:
        async with self.reading(partition):
            async for page in pages:
                yield page

    async def get_all(self, map: Map, partition: int, *args: Any, **kwargs: Any) -> dict[bytes, bytes]:
        if map is not self.map:
            return await self._get_all(map, partition, *args, **kwargs)
        async with self.reading(partition):
            return await self._get_all(map, partition, *args, **kwargs)


async def most_that_read_at_once(cluster: FaultyCluster, map: Map) -> int:
    """In a takeover of all partitions."""
    watched = Watched(cluster.connect(), map)
    formed = await find_or_form(watched.grid, FORMATION)
    host = Host(watched.grid, "one", Registry(), now_ms, formed.formation, 1, NodeSettings())
    async with trio.open_nursery() as nursery:
        await nursery.start(Node(host, listening, name="one").run)
        with trio.fail_after(20.0):
            await watched.all_read.wait()
        nursery.cancel_scope.cancel()
    return watched.most


async def test_a_takeover_reads_the_definitions_of_a_few_partitions_at_a_time() -> None:
    cluster = FaultyCluster(faults=Faults(), partitions=PARTITIONS)
    assert await most_that_read_at_once(cluster, Map.JOBS) == FIRST_SWEEPS_AT_ONCE


@pytest.mark.parametrize("are_large", [True, False])
async def test_a_takeover_reads_a_few_large_images_at_a_time(are_large: bool) -> None:
    cluster = FaultyCluster(faults=Faults(), partitions=PARTITIONS)
    grid = cluster.connect()
    formed = await find_or_form(grid, FORMATION)
    state = os.urandom(LARGE_BYTES if are_large else LARGE_BYTES // 2)
    for partition in range(PARTITIONS):
        journal = journal_of(grid, partition, formation=formed.formation)
        await journal.read()
        await journal.open("before", now_ms)
        journal.state.jobs["large"] = JobRecord("unknown", 1, 1, 1, Status.PAUSED, state, 0)
        await Imaging(journal).write()
    most = await most_that_read_at_once(cluster, Map.IMAGES)
    assert most == LARGE_IMAGES_AT_ONCE if are_large else most > 2 * LARGE_IMAGES_AT_ONCE

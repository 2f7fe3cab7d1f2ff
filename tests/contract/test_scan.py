"""Scans of one partition: nothing that stays is missed."""

import trio

from tenure.scheduler.grid.port import Map
from tests.contract.adapters import Adapter
from tests.contract.helpers import scanned


async def test_a_scan_sees_every_entry_with_its_value(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as grid:
        prefix = rig.fresh()
        there = {prefix + b"%d" % number: b"v%d" % number for number in range(130)}
        for key, value in there.items():
            await grid.set(Map.INBOX, 11, key, value)
        for page in (1, 7, 100, 10_000):
            assert dict(await scanned(grid, Map.INBOX, 11, prefix, page=page)) == there


async def test_a_scan_comes_in_pages(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        prefix = rig.fresh()
        for number in range(60):
            await grid.set(Map.INBOX, 12, prefix + b"%d" % number, b"")
        pages = [entries async for entries in grid.scan(Map.INBOX, 12, page=10)]
        assert len(pages) >= 3
        assert all(pages), "an empty page says nothing"


async def test_a_scan_of_nothing_ends(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        assert await scanned(grid, Map.REPLIES, 13, rig.fresh()) == []


async def test_a_scan_misses_nothing_that_stays_while_others_come_and_go(adapter: Adapter) -> None:
    async with adapter.open(members=2) as rig, rig.connect() as grid, rig.connect() as other:
        prefix = rig.fresh()
        stay = {prefix + b"stay%d" % number for number in range(100)}
        for key in stay:
            await grid.set(Map.JOURNAL, 14, key, b"s")
        for number in range(100):
            await grid.set(Map.JOURNAL, 14, prefix + b"go%d" % number, b"g")
        busy = True

        async def come_and_go() -> None:
            number = 0
            while busy:
                await other.set(Map.JOURNAL, 14, prefix + b"come%d" % number, b"c")
                await other.delete(Map.JOURNAL, 14, prefix + b"go%d" % (number % 100))
                await other.delete(Map.JOURNAL, 14, prefix + b"come%d" % (number - 10))
                await other.set(Map.JOURNAL, 14, prefix + b"go%d" % ((number - 50) % 100), b"g")
                number += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(come_and_go)
            for _ in range(3):
                seen = {entry.key for entry in await scanned(other, Map.JOURNAL, 14, prefix, page=10)}
                assert stay <= seen
                assert all(key.startswith(prefix) for key in seen)
            busy = False


async def test_a_scan_may_be_left_and_begun_again(adapter: Adapter) -> None:
    async with adapter.open() as rig, rig.connect() as grid:
        prefix = rig.fresh()
        for number in range(40):
            await grid.set(Map.INBOX, 15, prefix + b"%d" % number, b"")
        async for _ in grid.scan(Map.INBOX, 15, page=5):
            break
        assert len(await scanned(grid, Map.INBOX, 15, prefix, page=5)) == 40

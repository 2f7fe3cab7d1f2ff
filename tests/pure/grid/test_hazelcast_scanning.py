"""A page of a scan is no longer than its entries are large."""

from typing import Any

import pytest

from tenure.scheduler.grid.hazelcast.scanning import FIRST_PAGE, PAGE_BYTES, Scan
from tenure.scheduler.grid.port import Entry, Map

END = [-1, 0]


class Members:
    """Have entries of these sizes; `pages` are the numbers of entries that were asked for, `bytes` what they made."""

    def __init__(self, *sizes: int) -> None:
        self.left = [Entry(b"%d" % n, bytes(size)) for n, size in enumerate(sizes)]
        self.pages: list[int] = []
        self.bytes: list[int] = []

    def page(self, _pointers: Any, entries: int) -> int:
        return entries

    async def call(self, request: Any, _decode: Any, _partition: int, _timeout_s: Any, _about: Any) -> Any:
        self.pages.append(request)
        page, self.left = self.left[:request], self.left[request:]
        self.bytes.append(sum(len(entry.value) for entry in page))
        return ([1, 1] if self.left else END), page


async def scanned(members: Any, map: Map, page: int) -> list[Entry]:
    scan = Scan(members, map, members, 3, page, None)
    return [entry async for entries in scan for entry in entries]


async def test_large_entries_come_few_at_a_time() -> None:
    members = Members(*[2**20] * 100)
    assert len(await scanned(members, Map.INBOX, 100)) == 100
    assert max(members.bytes) == FIRST_PAGE * 2**20, "as large as any: it was not known yet"
    assert max(members.bytes[1:]) == PAGE_BYTES
    assert len(members.pages) == 1 + (100 - FIRST_PAGE) / 2


async def test_small_ones_come_together() -> None:
    members = Members(*[100] * 1000)
    assert len(await scanned(members, Map.INBOX, 100)) == 1000
    assert members.pages == [FIRST_PAGE] + [100] * 10
    members = Members(*[100] * 1000)
    assert len(await scanned(members, Map.JOBS, 500)) == 1000
    assert members.pages == [500] * 2


@pytest.mark.parametrize("map", [Map.INBOX, Map.JOBS, Map.NODES])
async def test_one_that_is_larger_than_a_page_and_those_without_bytes_come_too(map: Map) -> None:
    members = Members(0, 0, 10 * PAGE_BYTES, *[0] * 20, 10 * PAGE_BYTES, 1)
    assert len(await scanned(members, map, 2)) == 25
    assert members.pages[0] == 2
    assert members.pages[2] == 1

"""Scans of a partition: page by page, each no longer than its entries are large.

    first page: few entries ──> as they are large, so many of them make a page ──> ... ──> the end

A member counts entries, not bytes: a hundred slots of a lane may be a hundred mebibytes. On a link that does not carry
those within the deadline of one call, no scan would ever come to its end, and each would take all of the link.
"""

from collections.abc import Sequence

from tenure.scheduler.grid.hazelcast.calls import About, Caller
from tenure.scheduler.grid.hazelcast.wire import SCAN_FROM_START, Requests, decode_page
from tenure.scheduler.grid.port import Entry, Map

__all__ = ["Scan"]

LARGE = frozenset({Map.INBOX, Map.JOURNAL, Map.IMAGES})
"""The maps that have large values."""
FIRST_PAGE = 16
"""So many entries of these are asked for before it is known how large they are."""
PAGE_BYTES = 2**21
"""So large is a page, if the entries to come are like those that have come; unless one is larger."""


class Scan:
    """A class, not a generator: it holds nothing, and may be left at any page."""

    def __init__(
        self,
        caller: Caller,
        map: Map,
        requests: Requests,
        partition: int,
        page: int,
        timeout_s: float | None,
    ) -> None:
        """No page has more entries than `page`."""
        self._caller, self._requests, self._partition = caller, requests, partition
        self._page_max, self._timeout_s, self._about = page, timeout_s, About("scan", map.value, partition)
        self._page = min(FIRST_PAGE, page) if map in LARGE else page
        self._pointers: Sequence[int] = SCAN_FROM_START

    def __aiter__(self) -> "Scan":
        return self

    async def __anext__(self) -> list[Entry]:
        entries: list[Entry] = []
        while not entries:
            if self._pointers[-2] < 0:
                raise StopAsyncIteration
            request = self._requests.page(self._pointers, self._page)
            self._pointers, entries = await self._caller.call(
                request, decode_page, self._partition, self._timeout_s, self._about
            )
        size = sum(len(entry.value) for entry in entries)
        self._page = max(1, min(self._page_max, PAGE_BYTES * len(entries) // max(1, size)))
        return entries

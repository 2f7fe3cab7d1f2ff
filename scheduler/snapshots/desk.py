"""What all tenures of one node share of the snapshot that is under way: the request, the store, whose turn it is."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import trio

from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.snapshots.errors import SnapshotDamaged, StoreFailed
from tenure.scheduler.snapshots.form import BucketRef, Manifest, Part, read_manifest, unpack
from tenure.scheduler.snapshots.request import Phase, Request
from tenure.scheduler.snapshots.stores import Store, open_store
from tenure.scheduler.wire import decode

__all__ = ["Base", "Desk"]

PARTS_AT_ONCE = 2
"""So many partitions of a node are written at the same time: the others wait, captured."""
SCANS_AT_ONCE = 8
"""All partitions cut at the same moment; what comes behind need not be."""
COORDINATOR_GONE_S = 60.0
"""A coordinator that says nothing for so long is gone, and with it what was captured for it."""


class Base:
    """What the snapshot before has of one partition, to be referred to: as far as its packs are there, and not cut."""

    def __init__(self, part: Part | None = None, sizes: Mapping[str, int] | None = None) -> None:
        self.refs: dict[bytes, tuple[str, int, BucketRef]] = {}
        """digest -> (pack, its size, where in it)"""
        if part is None or sizes is None:
            return
        for ref in part.buckets:
            path, size_bytes = part.packs[ref.pack]
            if sizes.get(path) == size_bytes:
                self.refs[ref.digest] = (path, size_bytes, ref)


class _Before(NamedTuple):
    """The snapshot before."""

    manifest: Manifest
    sizes: dict[str, int]
    """Of all packs that are there, in bytes."""


class Desk:
    """One node's."""

    def __init__(self, opening: Callable[[str], Store] = open_store) -> None:
        self.opening = opening
        self.request: Request | None = None
        self.turn = trio.Semaphore(PARTS_AT_ONCE)
        self.scans = trio.Semaphore(SCANS_AT_ONCE)
        self._changed = trio.Event()
        self._heard_s = 0.0
        self._stores: dict[str, Store] = {}
        self._before: dict[str, _Before | None] = {}
        self._reading = trio.Lock()

    @property
    def number(self) -> int:
        """The snapshot for which partitions are to cut; 0: none is under way."""
        if self.request is None or self.request.phase == Phase.ENDED or self._is_abandoned():
            return 0
        return self.request.number

    def _is_abandoned(self) -> bool:
        return trio.current_time() - self._heard_s > COORDINATOR_GONE_S

    def has_given_up(self, number: int) -> bool:
        """Of one that is not gone on with here: may who asked for it wait all the same? It has not ended, as far as is
        known: nothing was heard of it for long."""
        request = self.request
        return request is None or (request.number, request.phase == Phase.ENDED) <= (number, False)

    def hear(self, stored: bytes) -> bool:
        """The request as it is in the grid. True: it is news."""
        try:
            request = decode(stored, Request)
        except (Undecodable, UnreadableFormat):
            return False  # of a newer version: its coordinator sees that we don't take part
        if request == self.request:
            if self._is_abandoned():
                self._tell()
            return False
        is_news = self.request is None or (request.number, request.phase) != (self.request.number, self.request.phase)
        is_news |= self._is_abandoned()  # whoever has begun meanwhile has heard of none
        if self.request is None or request.number != self.request.number or request.phase == Phase.ENDED:
            self._before.clear()
        self.request, self._heard_s = request, trio.current_time()
        if is_news:
            self._tell()
        return is_news

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def request_of(self, number: int, phase: str = Phase.CUTTING) -> Request | None:
        """The request of this number, once it has come to this phase. None: it is over."""
        while True:
            request = self.request
            if request is not None and request.number > number:
                return None
            if request is not None and request.number == number:
                if request.phase == Phase.ENDED or self._is_abandoned():
                    return None
                if phase in (Phase.CUTTING, request.phase):
                    return request
            changed = self._changed
            with trio.move_on_after(COORDINATOR_GONE_S) as patience:
                await changed.wait()
            if patience.cancelled_caught and (self.request is None or self.request.number < number):
                return None

    def store(self, url: str) -> Store:
        """The place that a request names. Raises `BadLocation`."""
        found = self._stores.get(url)
        if found is None:
            found = self._stores[url] = self.opening(url)
        return found

    async def base(self, request: Request, partition: int) -> Base:
        """What the snapshot before has of a partition; nothing where it can't be read, and then all is written."""
        before = await self._the_one_before(request)
        if before is None or partition >= len(before.manifest.parts):
            return Base()
        ref = before.manifest.parts[partition]
        try:
            stored = await self.store(request.url).read(ref.path)
            return Base(unpack(stored, Part, bytes.fromhex(ref.digest), ref.path), before.sizes)
        except (StoreFailed, SnapshotDamaged):
            return Base()

    async def _the_one_before(self, request: Request) -> _Before | None:
        """Read once for all partitions."""
        if not request.base:
            return None
        async with self._reading:
            if request.base not in self._before:
                store = self.store(request.url)
                try:
                    manifest = read_manifest(await store.read(request.base), request.base)
                    sizes = {stored.path: stored.size_bytes for stored in await store.files("packs")}
                    self._before[request.base] = _Before(manifest, sizes)
                except (StoreFailed, SnapshotDamaged):
                    self._before[request.base] = None
            return self._before[request.base]

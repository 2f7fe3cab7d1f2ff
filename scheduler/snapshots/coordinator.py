"""Taking a snapshot: ask every partition for its cut, wait for the parts, write the manifest.

    begin (compare-and-set) ──► all have cut ──► who is owed what? ──► all parts are stored ──► the manifest
       ▲                            │                                      │
       └── another attempt ◄────────┴── an owner changed, or gave up ◄─────┘

The coordinator may die at any moment: without a manifest there is no snapshot, and those before it are as they were.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import trio
from msgspec import UNSET
from msgspec.structs import replace

from tenure.scheduler.assignment import NODE_PREFIX, NodeInfo
from tenure.scheduler.cluster import MARKER, Cluster, find
from tenure.scheduler.errors import TenureError, Undecodable, UnreadableFormat
from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.errors import (
    SnapshotDamaged,
    SnapshotFailed,
    SnapshotUnderWay,
    StoreFailed,
    one_of_them,
)
from tenure.scheduler.snapshots.form import Manifest, PartRef, is_of, manifest_path
from tenure.scheduler.snapshots.moving import advance, move
from tenure.scheduler.snapshots.request import CHANNEL, CUT, REQUEST, Channel, Cut, Phase, Request
from tenure.scheduler.snapshots.stores import Store
from tenure.scheduler.wire import decode, encode

__all__ = ["SnapshotOptions", "Taken", "take_snapshot"]

T = TypeVar("T")
AT_ONCE = 32
POLL_S = 0.2
STORED_POLL_S = 1.0
BEAT_S = 1.0
ALIVE_S = 10.0
"""A request whose beat has not moved for so long is of a coordinator that is gone."""
SEEN_S = 60.0
"""What a node has written is seen by others after so long, on whatever they share."""
RETRY_PAUSE_S = 0.2
CLEAR_S = 30.0
"""What a failed attempt has left is deleted within this, or later, with what belongs to no snapshot."""
AGAIN_S_MAX = 5.0
"""Partitions may be on the move for a while: attempts are further apart each time, and no further than this."""


@dataclass(frozen=True, kw_only=True)
class SnapshotOptions:
    """How long it may take, and what is kept."""

    keep: int = 0
    """So many snapshots are kept at this place, the newest; 0: all."""
    deadline_s: float = 600.0
    attempts_max: int = 10


class Taken(NamedTuple):
    """A snapshot that is there."""

    manifest: Manifest
    not_deleted: str
    """Why older ones stay that were not to be kept; empty: nothing was in the way."""


async def take_snapshot(
    grid: Grid,
    url: str,
    store: Store,
    now_ms: Callable[[], int],
    options: SnapshotOptions | None = None,
    *,
    formation: str = "",
) -> Taken:
    """Take one. Raises `SnapshotFailed`, `SnapshotUnderWay`, or what the store raises; nothing is left half done.

    `formation`: only in this cluster (one that was restored from it is another).
    """
    options = options or SnapshotOptions()
    catalog = Catalog(store)
    why = ""
    coordinator: _Coordinator | None = None
    with trio.move_on_after(options.deadline_s) as deadline:
        for attempt in range(options.attempts_max):
            coordinator = _Coordinator(grid, url, store, catalog, now_ms)
            try:
                await coordinator.run(formation)
            except _AttemptFailed as failed:
                why = str(failed)
                await _clear(catalog, coordinator, options)
                if failed.final:
                    break
                await trio.sleep(min(AGAIN_S_MAX, RETRY_PAUSE_S * 2**attempt))
                continue
            except StoreFailed:
                await _clear(catalog, coordinator, options)
                raise
            break
    taken = coordinator.taken if coordinator is not None else None
    if taken is None:
        if deadline.cancelled_caught and coordinator is not None:
            await _clear(catalog, coordinator, options)
        why = why or (coordinator.awaited() if coordinator is not None else "") or "nobody answered"
        limit = f" within {options.deadline_s:g} s" if deadline.cancelled_caught else ""
        raise SnapshotFailed(f"No snapshot was taken{limit}: {why}. Those before are as they were.")
    return Taken(taken, await _retain(catalog, options))


async def _clear(catalog: Catalog, coordinator: "_Coordinator", options: SnapshotOptions) -> None:
    """Nothing refers to what a failed attempt has written. Where the place is full, the next one may have room then."""
    with trio.move_on_after(CLEAR_S):
        try:
            if (attempt := await coordinator.forsaken()) is not None:
                await catalog.forsake(attempt)
            if options.keep:
                await catalog.retain(options.keep)
        except TenureError:
            pass  # it is the place that is in the way; what is left is deleted with what has no snapshot, later


async def _retain(catalog: Catalog, options: SnapshotOptions) -> str:
    """Why older ones stay. What is in the way of deleting them is no failure of the snapshot, which is there."""
    if not options.keep:
        return ""
    with trio.move_on_after(options.deadline_s):
        try:
            await catalog.retain(options.keep)
        except TenureError as error:
            return f"{type(error).__name__}: {error}"
        return ""
    return f"the place did not answer within {options.deadline_s:g} s"


class _AttemptFailed(Exception):
    def __init__(self, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


def _decoded(stored: bytes, type: type[T]) -> T | None:
    """None: it is damaged, and is written again by who has something to say there."""
    try:
        return decode(stored, type)
    except (Undecodable, UnreadableFormat):
        return None


class _Coordinator:
    """One attempt."""

    def __init__(self, grid: Grid, url: str, store: Store, catalog: Catalog, now_ms: Callable[[], int]) -> None:
        self.grid, self.url, self.store, self.catalog, self.now_ms = grid, url, store, catalog, now_ms
        self.cuts: dict[int, Cut] = {}
        self.taken: Manifest | None = None
        """Known also where we are cancelled in that moment."""
        self._request: Request | None = None
        self._moving: list[Request] = []
        """What it may be already, where a beat was interrupted."""
        self._adding = ""
        """The name of its manifest, when that may be there."""
        self._missing: list[int] = []
        self._packs: set[str] = set()
        self._turn = trio.Lock()

    async def run(self, formation: str) -> None:
        cluster = await self._cluster(formation)
        await self._check_nodes()
        began_s = trio.current_time()
        name = await self._begin()
        taken_ms = self.now_ms()
        try:
            with one_of_them():
                await self._go_on(cluster)
                await self._add(self._manifest(name, taken_ms, cluster, trio.current_time() - began_s))
        finally:
            await self._end()

    async def _go_on(self, cluster: Cluster) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_beating, cluster)
            await self._await(lambda cut: True, POLL_S)
            await self._tell_channels()
            await self._await(lambda cut: bool(cut.part), STORED_POLL_S)
            await self._check_nodes()  # one that does not mark its slots may have owned a partition meanwhile
            await self._see_all()
            await self._check_cluster(cluster)  # if it is what it was, no part is of a restore
            nursery.cancel_scope.cancel()

    async def forsaken(self) -> str | None:
        """The attempt whose files nobody needs; None: it has written none, or there may be a manifest of it."""
        if self._request is None or (self._adding and not await self.catalog.has_failed_to_add(self._adding)):
            return None
        return self._request.attempt

    def awaited(self) -> str:
        """What there was to wait for, for people."""
        some = ", ".join(map(str, self._missing[:5])) + (", …" if len(self._missing) > 5 else "")
        return f"nothing is heard of partitions {some}: see `tenure partitions`" if self._missing else ""

    def _manifest(self, name: str, taken_ms: int, cluster: Cluster, duration_s: float) -> Manifest:
        cuts = [self.cuts[partition] for partition in range(self.grid.partition_count)]
        return Manifest(
            name,
            taken_ms,
            cluster.formation,
            cluster.incarnation,
            cluster.partition_count,
            [PartRef(cut.part, cut.digest) for cut in cuts],
            sum(cut.jobs for cut in cuts),
            sum(cut.size_bytes for cut in cuts),
            sum(cut.written_bytes for cut in cuts),
            round(duration_s, 3),
            sorted(self._packs),
            cluster.format,
        )

    # -- beginning --------------------------------------------------------------------------------

    async def _cluster(self, formation: str) -> Cluster:
        try:
            cluster = await find(self.grid)
        except GridError as error:
            raise _AttemptFailed(f"the members do not answer: {error}") from error
        if cluster is None:
            raise _AttemptFailed("there is no cluster here, or it is being restored", final=True)
        if formation and cluster.formation != formation:
            raise _AttemptFailed(
                f"this is cluster {cluster.formation}, and was to be {formation}: one was made of the other by "
                "`tenure restore`. Schedule snapshots of this one anew, at a place of its own",
                final=True,
            )
        return cluster

    async def _check_cluster(self, began: Cluster) -> None:
        """Whoever restores here changes the marker before anything else, and no formation comes twice."""
        try:
            stored = await self.grid.get(Map.NODES, 0, MARKER)
            # A read may be out of date, a conditional write is not.
            is_so = stored is not None and await self.grid.replace_if_same(Map.NODES, 0, MARKER, stored, stored)
        except GridError as error:
            raise _AttemptFailed(f"the members do not answer: {error}") from error
        cluster = decode(stored, Cluster) if stored is not None and is_so else None
        if cluster is None or not cluster.formed:
            raise _AttemptFailed("there is no cluster here any more, or it is being restored")
        if cluster.formation != began.formation:
            raise _AttemptFailed("a snapshot was restored here meanwhile, and this is another cluster now", final=True)

    async def _check_nodes(self) -> None:
        try:
            async for page in self.grid.scan(Map.NODES, 0):
                for entry in page:
                    if entry.key.startswith(NODE_PREFIX):
                        try:
                            node = decode(entry.value, NodeInfo)
                        except (Undecodable, UnreadableFormat):
                            continue  # no node's: all versions say what they are in the first format
                        _check(node)
        except GridError as error:
            raise _AttemptFailed(f"the members do not answer: {error}") from error

    async def _begin(self) -> str:
        """Take the one request there is, unless another coordinator is alive. Returns the name of what is to be."""
        try:
            stored = await self.grid.get(Map.NODES, 0, REQUEST)
            there = _decoded(stored, Request) if stored is not None else None
            if stored is not None and there is not None and there.phase != Phase.ENDED:
                stored, there = await self._outwait(stored, there)
            # Between seeing the request and replacing it: so nobody has taken a snapshot since, and what the newest one
            # needs is deleted by nobody.
            name, base = await self.catalog.next_name(self.now_ms())
            number = there.number + 1 if there is not None else await self._unused_number()
            new = Request(number, secrets.token_hex(8), self.url, manifest_path(base.name) if base is not None else "")
            if stored is None:
                is_ours = await self.grid.put_if_absent(Map.NODES, 0, REQUEST, encode(new)) is None
            else:
                is_ours = await self.grid.replace_if_same(Map.NODES, 0, REQUEST, stored, encode(new))
        except GridError as error:
            raise _AttemptFailed(f"the members do not answer: {error}") from error
        if not is_ours:
            raise _AttemptFailed("another coordinator was faster")
        self._request = new
        return name

    async def _unused_number(self) -> int:
        """There is no request: there never was one, or it is lost or damaged. Partitions remember their last cut."""
        numbers, is_new = [0], True
        for partition in range(self.grid.partition_count):
            stored = await self.grid.get(Map.HEADS, partition, CUT)
            is_new &= stored is None
            if stored is not None and (cut := _decoded(stored, Cut)) is not None:
                numbers.append(cut.number)
        return 1 if is_new else max(*numbers, self.now_ms()) + 1

    async def _outwait(self, stored: bytes, there: Request) -> tuple[bytes, Request]:
        """Is its coordinator alive? Then it is its turn."""
        with trio.move_on_after(ALIVE_S):
            while True:
                await trio.sleep(BEAT_S / 2)
                now = await self.grid.get(Map.NODES, 0, REQUEST)
                if now is None or now == stored:
                    continue
                request = decode(now, Request)
                if request.phase == Phase.ENDED:
                    return now, request
                raise SnapshotUnderWay(f"snapshot {request.attempt} is being taken, to {request.url}: wait for its end")
        return stored, there

    # -- going on ---------------------------------------------------------------------------------

    async def _change(self, **changes: object) -> None:
        """Move the request, unless it is another's by now."""
        async with self._turn:
            assert self._request is not None
            olds = [self._request, *self._moving]
            new = replace(self._request, beat=olds[-1].beat + 1, **changes)
            self._moving.append(new)
            if not await move(self.grid, REQUEST, [encode(old) for old in olds], encode(new), RETRY_PAUSE_S):
                raise _AttemptFailed("another coordinator has taken over, as this one was silent for long")
            self._request, self._moving = new, []

    async def _keep_beating(self, began: Cluster) -> None:
        while True:
            await trio.sleep(BEAT_S)
            await self._change()
            await self._check_cluster(began)
            await self._check_nodes()

    async def _add(self, manifest: Manifest) -> None:
        """However long that takes, we live. What we hear meanwhile comes too late: it may be there already."""
        self._adding = manifest.name
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stay_alive)
            await self.catalog.add(manifest)
            self.taken = manifest
            nursery.cancel_scope.cancel()

    async def _stay_alive(self) -> None:
        try:
            while True:
                await trio.sleep(BEAT_S)
                await self._change()
        except _AttemptFailed:
            pass

    async def _end(self) -> None:
        """What was captured and is not stored may be forgotten. A hint: they forget it later without."""
        with trio.move_on_after(BEAT_S, shield=True):
            try:
                await self._change(phase=Phase.ENDED, channels=())
            except _AttemptFailed:
                pass

    async def _await(self, is_done: Callable[[Cut], bool], poll_s: float) -> None:
        """Until all partitions have come so far. Raises if one has given up."""
        assert self._request is not None
        number, missing = self._request.number, list(range(self.grid.partition_count))
        limiter = trio.Semaphore(AT_ONCE)

        async def look(partition: int) -> None:
            async with limiter:
                try:
                    stored = await self.grid.get(Map.HEADS, partition, CUT)
                except GridError:
                    return
            cut = _decoded(stored, Cut) if stored is not None else None
            if cut is None or cut.number != number:
                return
            if cut.failure:
                raise _AttemptFailed(cut.failure, final=cut.final)
            if is_done(cut):
                self.cuts[partition] = replace(cut, numbered=cut.numbered or self._numbered(partition))
                missing.remove(partition)

        while True:
            async with trio.open_nursery() as nursery:
                for partition in list(missing):
                    nursery.start_soon(look, partition)
            self._missing = missing
            if not missing:
                return
            await trio.sleep(poll_s)

    async def _see_all(self) -> None:
        """All that is going to be promised is there, and seen from here: whoever restores it may be nowhere else."""
        assert self._request is not None
        cuts = self.cuts.values()
        await self._see(f"parts/{self._request.attempt}", {cut.part for cut in cuts})
        try:
            # What the manifest does not name is deleted one day, and a node of an older version names nothing.
            unnamed = [PartRef(cut.part, cut.digest) for cut in cuts if cut.packs is UNSET]
            self._packs = await self.catalog.packs_of(unnamed)
        except SnapshotDamaged as error:
            raise _AttemptFailed(str(error)) from error
        self._packs.update(path for cut in cuts if cut.packs is not UNSET for path in cut.packs)
        await self._see("packs", self._packs)

    async def _see(self, folder: str, paths: set[str]) -> None:
        assert self._request is not None
        attempt, missing = self._request.attempt, set(paths)
        with trio.move_on_after(SEEN_S):
            while True:
                missing -= {stored.path for stored in await self.store.files(folder)}
                if not missing:
                    return
                before = [path for path in missing if not is_of(attempt, path)]
                if before:
                    raise _AttemptFailed(f"{min(before)}, of a snapshot before, is missing")
                await trio.sleep(STORED_POLL_S)  # a network's directory may show late what others have written
        raise _AttemptFailed(
            f"{min(missing)} was written by a node, and is not seen from here; {self.url} must be the same place for "
            "all nodes, and for whoever takes snapshots",
            final=True,
        )

    def _numbered(self, partition: int) -> dict[int, int]:
        known = self.cuts.get(partition)
        return known.numbered if known is not None else {}

    async def _tell_channels(self) -> None:
        """What was numbered for a partition before its sender's cut, and not taken before its own."""
        assert self._request is not None
        number, channels = self._request.number, channels_of(self.cuts)
        for partition, ends in channels.items():
            new = encode(Channel(number, ends))
            if not await advance(self.grid, partition, CHANNEL, new, partial(_is_earlier, number), _pause):
                raise _AttemptFailed("another coordinator has taken over, as this one was silent for long")
        await self._change(phase=Phase.COLLECTING, channels=tuple(channels))


def _is_earlier(number: int, stored: bytes) -> bool:
    channel = _decoded(stored, Channel)
    return channel is None or channel.number < number


async def _pause(attempt: int) -> None:
    await trio.sleep(RETRY_PAUSE_S)


def _check(node: NodeInfo) -> None:
    """Can there be a snapshot with this node?"""
    if node.lost:
        raise _AttemptFailed(
            f"partition {node.lost[0]} is lost: its jobs would be missing. Go on without them, or restore", final=True
        )
    if node.parked:
        partition, why = min(node.parked.items())
        raise _AttemptFailed(f"partition {partition} is parked on node {node.id}: {why}")
    if not node.cuts:
        raise _AttemptFailed(f"node {node.id} runs a version that takes no snapshots: upgrade it first")


def channels_of(cuts: dict[int, Cut]) -> dict[int, dict[int, int]]:
    """receiver -> sender -> up to where, for all to whom something was on its way."""
    found: dict[int, dict[int, int]] = {}
    for sender, cut in cuts.items():
        for receiver, end in cut.numbered.items():
            if cuts[receiver].cursors.get(sender, 0) < end:
                found.setdefault(receiver, {})[sender] = end
    return found

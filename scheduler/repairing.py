"""What of the cluster's bookkeeping is damaged, what can be mended, and how to go on where it can't.

    marker       made again of what the heads say; put back as it was, where a restore was left before it wrote anything
    assignment   taken away: nodes compute it again
    heartbeats, orders, requests, words of hangs that nobody can read: taken away
    watermarks   announced anew, above all that clients have begun
    heads        can't be made again: the jobs of their partitions come back with a snapshot

Each mend is one conditional write, from the very bytes that were found damaged; so it harms nothing that has come in
their place since.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import trio

from tenure.scheduler.assignment import ASSIGNMENT, NODE_PREFIX, Assignment, NodeInfo
from tenure.scheduler.cluster import ALIVE_S, MARKER, Cluster, marker_of, recover_marker, told_by_heads
from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.hangs import HANG_PREFIX, Hang
from tenure.scheduler.keys import HEAD, WATERMARK
from tenure.scheduler.orders import HOLD, Order, leave_key, order_key
from tenure.scheduler.snapshots.request import REQUEST, Request
from tenure.scheduler.upgrade_plan import PLAN, UpgradePlan
from tenure.scheduler.wire import Head, decode, encode

__all__ = ["Damage", "damaged_entries", "damages"]

LOOKS, LOOK_PAUSE_S = 4, 0.5
"""What reads absent so often is not there: a member that fails may hide it for a moment."""
RESTORE = "restore a snapshot (`tenure restore URL --replace`)"
READABLE: tuple[tuple[bytes, type[Any]], ...] = (
    (NODE_PREFIX, NodeInfo),
    (order_key(""), Order),
    (leave_key(""), Order),
    (REQUEST, Request),
    (PLAN, UpgradePlan),
    (HANG_PREFIX, Hang),
)
"""What is taken away where it can't be read: who has put it there puts it there again, or has gone."""


class Damage(NamedTuple):
    """Something that is damaged."""

    where: str
    finding: str
    remedy: str
    """What is done about it, or else what to do."""
    mend: Callable[[], Awaitable[object]] | None = None
    """None: it can't be mended here."""
    harms: bool = True
    """False: it is in nobody's way."""


async def damaged_entries(grid: Grid, *, with_restores: bool = True) -> list[Damage]:
    """What is damaged of the whole cluster's bookkeeping, without its partitions'. Restores that were interrupted take
    a while to be told from those that go on. Raises `GridError`."""
    found = [damage async for damage in _of_the_cluster(grid, with_restores)]
    return found + [damage async for damage in _of_nodes(grid)]


async def damages(grid: Grid, now_ms: int) -> list[Damage]:
    """All that is damaged, as far as bookkeeping goes. Raises `GridError`."""
    found = await damaged_entries(grid)
    marker = await _get(grid, Map.NODES, 0, MARKER)
    cluster = marker_of(marker) if marker is not None else None
    found += [damage async for damage in _of_heads(grid, cluster or await told_by_heads(grid))]
    found += [damage async for damage in _of_watermarks(grid, now_ms)]
    return found


# -- the marker -----------------------------------------------------------------------------------


async def _of_the_cluster(grid: Grid, with_restores: bool) -> AsyncIterator[Damage]:
    stored = await _get(grid, Map.NODES, 0, MARKER)
    if stored is None:
        if (told := await told_by_heads(grid)) is not None and told.formed:
            text = encode(told)
            remedy = f"it is made again of the heads, which are of cluster {told.formation}"
            mend = _then(grid.put_if_absent, Map.NODES, 0, MARKER, text)
            yield Damage("marker", "the cluster's marker is gone", remedy, mend)
        return
    marker = marker_of(stored)
    if marker is None:
        told = await told_by_heads(grid)
        what = f"the cluster's marker can't be read ({_shown(stored)})"
        if told is not None and told.formed:
            remedy = f"it is made again of the heads, which are of cluster {told.formation}"
            yield Damage("marker", what, remedy, _then(recover_marker, grid, stored))
        else:
            why = "no head is there" if told is None else "the heads are of two clusters, as in the middle of a restore"
            yield Damage("marker", what, f"it can't be made again, as {why}: {RESTORE}")
    elif marker.restoring and with_restores and await _is_left(grid, stored):
        what = f"the restore of snapshot {marker.restoring} was interrupted, and keeps nodes out"
        if marker.former and not marker.settled:
            remedy = "it had not written anything: the cluster of before is let in again"
            mend = _then(grid.replace_if_same, Map.NODES, 0, MARKER, stored, marker.former)
            yield Damage("marker", what, remedy, mend)
        else:
            yield Damage("marker", what, f"it may have removed something: {RESTORE}, to its end")


async def _is_left(grid: Grid, stored: bytes) -> bool:
    """Does nobody go on with what this marker says?"""
    with trio.move_on_after(ALIVE_S):
        while await grid.get(Map.NODES, 0, MARKER) in (stored, None):  # noqa: ASYNC110  # nothing tells
            await trio.sleep(LOOK_PAUSE_S)
        return False
    return True


# -- beside it ------------------------------------------------------------------------------------


async def _of_nodes(grid: Grid) -> AsyncIterator[Damage]:
    async for page in grid.scan(Map.NODES, 0):
        for key, stored in page:
            if key == ASSIGNMENT:
                if not _makes_sense(stored, grid.partition_count):
                    mend = _then(grid.replace_if_same, Map.NODES, 0, key, stored, encode(Assignment(0, ())))
                    what = f"the assignment of partitions can't be read ({_shown(stored)})"
                    yield Damage("assignment", what, "nodes compute it again", mend)
                continue
            type = next((type for prefix, type in READABLE if key.startswith(prefix)), None)
            name = key.decode(errors="backslashreplace")
            if type is not None and not _can_be_read(stored, type):
                what = f"it can't be read ({_shown(stored)})"
                yield Damage(f"entry {name!r}", what, "it is taken away", _then(_take_away, grid, key, stored))
            elif type is None and key not in (MARKER, HOLD) and not key.startswith(b"doctor/"):
                yield Damage(f"entry {name!r}", "this version knows no such entry", "it is ignored", harms=False)


async def _take_away(grid: Grid, key: bytes, stored: bytes) -> None:
    # Of what has come in its place since, nothing is lost: a node writes its heartbeat again.
    if await grid.replace_if_same(Map.NODES, 0, key, stored, stored):
        await grid.delete(Map.NODES, 0, key)


def _makes_sense(stored: bytes, partition_count: int) -> bool:
    try:
        return len(decode(stored, Assignment).owners) in (0, partition_count)
    except (Undecodable, UnreadableFormat):
        return False


# -- partitions -----------------------------------------------------------------------------------


async def _of_heads(grid: Grid, cluster: Cluster | None) -> AsyncIterator[Damage]:
    if cluster is None:
        return  # nothing was formed here, or all is gone: that is said of the whole
    heads = await _heads(grid)
    for partition in range(grid.partition_count):
        if (stored := heads.get(partition)) is None:
            what = "its head is gone"
        else:
            try:
                head = decode(stored, Head)
            except (Undecodable, UnreadableFormat) as error:
                what = f"its head can't be read ({error})"
            else:
                if head.formation == cluster.formation or cluster.restoring or not cluster.formed:
                    continue
                what = f"its head is of another cluster, {head.formation}"
        remedy = f"it stands still, the others go on; its jobs come back with a snapshot: {RESTORE}"
        yield Damage(f"partition {partition}", what, remedy)


async def _heads(grid: Grid) -> dict[int, bytes]:
    """Those that do not read absent each time."""
    found: dict[int, bytes] = {}
    for n in range(LOOKS):
        if n and len(found) < grid.partition_count:
            await trio.sleep(LOOK_PAUSE_S)
        for partition in range(grid.partition_count):
            if partition not in found and (stored := await grid.get(Map.HEADS, partition, HEAD)) is not None:
                found[partition] = stored
    return found


async def _of_watermarks(grid: Grid, now_ms: int) -> AsyncIterator[Damage]:
    for partition in range(grid.partition_count):
        stored = await grid.get(Map.HEADS, partition, WATERMARK)
        if stored is not None and not _can_be_read(stored, int):
            mend = _then(grid.replace_if_same, Map.HEADS, partition, WATERMARK, stored, encode(now_ms))
            what = f"its watermark can't be read ({_shown(stored)}): clients can't begin to send there"
            yield Damage(f"partition {partition}", what, "it is announced anew", mend)


# -- small things ---------------------------------------------------------------------------------


async def _get(grid: Grid, map: Map, partition: int, key: bytes) -> bytes | None:
    """None if it reads absent each time."""
    for n in range(LOOKS):
        if n:
            await trio.sleep(LOOK_PAUSE_S)
        if (stored := await grid.get(map, partition, key)) is not None:
            return stored
    return None


def _can_be_read(stored: bytes, type: type[Any]) -> bool:
    try:
        decode(stored, type)
    except (Undecodable, UnreadableFormat):
        return False
    return True


def _shown(stored: bytes) -> str:
    return f"{len(stored)} bytes, {stored[:16].hex(' ')}{' …' if len(stored) > 16 else ''}"


def _then(do: Callable[..., Awaitable[object]], *args: Any) -> Callable[[], Awaitable[object]]:
    async def mend() -> object:
        return await do(*args)

    return mend

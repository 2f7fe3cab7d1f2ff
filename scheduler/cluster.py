"""Forming a cluster: heads are created once, together, and never again.

A marker says that forming was begun, and then that it was finished. Should the marker be lost later, the
heads that are still there carry the name of their forming: it is restored, and the partitions whose heads
are gone are reported as lost, not taken for new ones. So it is where the marker is there and can't be read.
"""

import trio
from msgspec import Struct
from msgspec.structs import replace

from tenure.scheduler.errors import NotDone, Undecodable, UnreadableFormat
from tenure.scheduler.fences import first_incarnation
from tenure.scheduler.formats import FIRST
from tenure.scheduler.grid.port import Grid, GridError, Map, Refused
from tenure.scheduler.keys import HEAD
from tenure.scheduler.wire import Head, decode, encode

__all__ = [
    "Cluster",
    "MarkerDamaged",
    "find",
    "find_or_form",
    "has_lost_all",
    "marker_of",
    "recover_marker",
    "told_by_heads",
]

MARKER = b"cluster"
ALIVE_S = 10.0
"""A marker that says that somebody restores, and has not moved for so long, is of one who was interrupted."""
CONFIRMATIONS, CONFIRM_PAUSE_S = 4, 0.5


class Cluster(Struct, frozen=True):
    """The marker."""

    formation: str
    incarnation: int
    partition_count: int
    formed: bool
    format: int = FIRST
    """What all writers write (see `formats`)."""
    restoring: str = ""
    """The snapshot that is being restored: until that is done, nobody opens a partition, and clients wait."""
    beat: int = 0
    """Moves while somebody is restoring it."""
    replaces: str = ""
    """The cluster that was here before a snapshot was restored: its nodes go on with this one."""
    restored: str = ""
    """The snapshot that this cluster was made of."""
    settled: bool = False
    """All who were here have noticed that it is being restored: writing may have begun. Older versions don't say so."""
    former: bytes = b""
    """The marker that was here before somebody restored: until that is settled, it may be put back."""
    sealed: str = ""
    """Who shuts it down with a snapshot: clients store nothing meanwhile (see `seal`)."""
    ended: str = ""
    """The snapshot that it was shut down with: it goes on where that is restored, and nowhere else."""
    anew: bool = False
    """Somebody has said that an empty cluster is to take the place of the one before."""


class MarkerDamaged(Undecodable):
    """The cluster's marker can't be read, and heads don't tell what it was."""

    def __init__(self) -> None:
        super().__init__(
            "the cluster's marker can't be read, and the heads of its partitions don't tell whose they are: look at it "
            "with `tenure repair`, and restore a snapshot (`tenure restore URL --replace`)"
        )


async def find_or_form(
    grid: Grid,
    name: str,
    *,
    instead_of: Cluster | None = None,
    now_ms: int = 0,
    deadline_s: float = 30.0,
    retry_s: float = 0.1,
) -> Cluster:
    """The cluster of this grid; formed under `name` (unique to this try) if there is none yet. `instead_of`: one
    that was here before, and whose place it is to take. `now_ms`: the time, so that its fencing tokens are above those
    of clusters before."""
    mine = Cluster(name, first_incarnation(now_ms), grid.partition_count, False)
    if instead_of is not None:
        mine = replace(mine, incarnation=max(mine.incarnation, instead_of.incarnation + 1), anew=True)
    seen: Cluster | None = None
    with trio.move_on_after(deadline_s) as patience:
        while True:
            try:
                cluster, stored = await _find_or_begin(grid, mine)
                if cluster.formed:
                    return cluster
                if not cluster.restoring:
                    await _finish(grid, cluster, stored)
                    continue
                if cluster != seen:  # it goes on: we wait as long as it takes
                    seen, patience.deadline = cluster, trio.current_time() + deadline_s
            except GridError:
                pass
            await trio.sleep(retry_s)
    if seen is not None:
        raise NotDone(
            f"snapshot {seen.restoring} was being restored into this cluster, and nobody has gone on with that for "
            f"{deadline_s} s: run `tenure restore` again"
        )
    raise NotDone(
        f"the cluster could not be found or formed within {deadline_s} s: the grid does not answer, or refuses writes"
    )


async def find(grid: Grid) -> Cluster | None:
    """The cluster, if it is formed. Raises `GridError`."""
    stored = await grid.get(Map.NODES, 0, MARKER)
    if stored is None:
        return None
    cluster = decode(stored, Cluster)
    return cluster if cluster.formed else None


async def has_lost_all(grid: Grid) -> bool:
    """Of a cluster that was formed: no head can be found, however often one looks. Raises `GridError`: reads that fail
    prove nothing."""
    for n in range(CONFIRMATIONS):
        if n:
            await trio.sleep(CONFIRM_PAUSE_S)
        for partition in range(grid.partition_count):
            if await grid.get(Map.HEADS, partition, HEAD) is not None:
                return False
    return True


def marker_of(stored: bytes) -> Cluster | None:
    """None: it is damaged. (All versions write it in the first format.)"""
    try:
        return decode(stored, Cluster)
    except (Undecodable, UnreadableFormat):
        return None


async def told_by_heads(grid: Grid) -> Cluster | None:
    """The cluster that the heads are of, as its marker would say it. In the middle of a restore they are of two: then
    the later one, not formed. None: there are no heads. Raises `GridError`."""
    seen: set[tuple[int, str]] = set()
    format, proof = FIRST, (0, b"")
    for partition in range(grid.partition_count):
        stored = await grid.get(Map.HEADS, partition, HEAD)
        if stored is None:
            continue
        try:
            head = decode(stored, Head)
        except (Undecodable, UnreadableFormat):
            continue
        seen.add((head.incarnation, head.formation))
        format, proof = max(format, stored[0]), (partition, stored)
    if not seen:
        return None
    incarnation, formation = max(seen)
    is_one = len(seen) == 1 and await grid.replace_if_same(Map.HEADS, proof[0], HEAD, proof[1], proof[1])
    return Cluster(formation, incarnation, grid.partition_count, is_one, format)


async def recover_marker(grid: Grid, damaged: bytes) -> Cluster:
    """Put in its place what heads say. Raises `MarkerDamaged`, `GridError`."""
    found = await told_by_heads(grid)
    if found is None or not found.formed:
        raise MarkerDamaged
    await grid.replace_if_same(Map.NODES, 0, MARKER, damaged, encode(found))
    return found


async def _find_or_begin(grid: Grid, mine: Cluster) -> tuple[Cluster, bytes]:
    stored = await grid.get(Map.NODES, 0, MARKER)
    if stored is None:
        stored = await grid.put_if_absent(Map.NODES, 0, MARKER, encode(mine)) or encode(mine)
    cluster = marker_of(stored)
    if cluster is None:
        await recover_marker(grid, stored)
        raise Refused("the marker was damaged, and is looked at again")
    return cluster, stored


async def _finish(grid: Grid, cluster: Cluster, stored: bytes) -> None:
    """Create the heads and say so in the marker. Whoever finds a forming unfinished goes on with it."""
    formation, incarnation, anew = cluster.formation, cluster.incarnation, cluster.anew
    for partition in range(grid.partition_count):
        head = Head(cluster.formation, cluster.incarnation)
        there = await grid.put_if_absent(Map.HEADS, partition, HEAD, encode(head))
        if there is not None and (found := decode(there, Head)).formation != cluster.formation:
            # The marker was lost, the cluster was not. Heads that we made just now don't count as its heads.
            formation, incarnation, anew = found.formation, found.incarnation, False
            break
    formed = Cluster(formation, incarnation, cluster.partition_count, True, cluster.format, anew=anew)
    await grid.replace_if_same(Map.NODES, 0, MARKER, stored, encode(formed))

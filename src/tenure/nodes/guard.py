"""Is this still the cluster that the node joined? Looked at now and then, and at every change of members.

    marker there, of our formation ──► heads there? go on : ClusterLost
    restored from a snapshot ────────► likewise, as of the cluster that it is now
    marker of another formation ─────► ClusterReplaced
    marker proved absent ────────────► put it back; then as if it had been there
    no answer for too long ──────────► GridGone

Putting the marker back keeps a grid that came back empty from being taken for a new one by the next node
that starts: it finds a cluster without heads, and says so. So a marker of ours proves nothing, to the others
that were there before no more than to that one: each looks for a head itself, each time.

A node that starts knows by its notes which cluster was here before (see `memory`), and does the same: it forms none
where it knew one, and joins no other, unless that was put there on purpose.
"""

import secrets
from collections.abc import Callable

import structlog
import trio
from msgspec.structs import replace

from tenure.nodes.errors import ClusterEnded, ClusterLost, ClusterReplaced, GridGone, NodeError
from tenure.nodes.memory import follows
from tenure.scheduler.cluster import MARKER, Cluster, find_or_form, has_lost_all, marker_of
from tenure.scheduler.errors import NotDone
from tenure.scheduler.fences import first_incarnation
from tenure.scheduler.formats import Formats
from tenure.scheduler.grid.port import Grid, GridError, Map, OwnershipEvent, Refused
from tenure.scheduler.texts import told
from tenure.scheduler.wire import encode

__all__ = ["begin_anew", "guard", "join_cluster"]

LOOK_EVERY_S = 2.0
WAYS_BACK = (
    "Restore a snapshot (`tenure restore URL --replace`), and start the node again; or go on with an empty cluster: "
    "start one node with --begin-anew, then the others."
)


async def join_cluster(
    grid: Grid,
    *,
    known: Cluster | None = None,
    begin_anew_if_lost: bool = False,
    now_ms: int = 0,
    deadline_s: float = 30.0,
) -> tuple[Cluster, bool]:
    """The cluster in this grid, and whether it was formed just now. `known` is what was here before, as far as this
    machine's nodes know; `now_ms` the time (see `find_or_form`).

    Raises `ClusterLost` if that, or the one in this grid, has lost everything; `ClusterReplaced` if another is here
    that nobody has put there on purpose; `ClusterEnded` if it was shut down with a snapshot.
    """
    name = secrets.token_hex(6)
    try:
        if begin_anew_if_lost:
            await begin_anew(grid, known, now_ms)
            cluster = await find_or_form(grid, name, instead_of=known, now_ms=now_ms, deadline_s=deadline_s)
        else:
            if known is not None:
                await _put_back(grid, known)
            cluster = await find_or_form(grid, name, now_ms=now_ms, deadline_s=deadline_s)
        if cluster.ended:
            raise ClusterEnded(
                f"This cluster was shut down with snapshot {cluster.ended}, and takes nothing any more: start nodes "
                "where that is restored. To go on with it here, restore it here (`tenure restore URL --replace`)."
            )
        lost = cluster.formation != name and await has_lost_all(grid)
    except NotDone as error:
        raise GridGone(f"{error}; look at the members with `tenure doctor`.") from error
    except GridError as error:
        raise GridGone(
            f"Whether the cluster still has its data could not be found out ({error}). "
            "Look at the members with `tenure doctor`, and start the node again."
        ) from error
    if lost:
        raise ClusterLost(_lost(cluster))
    if known is not None and not begin_anew_if_lost and not follows(known, cluster):
        raise ClusterReplaced(
            f"Nodes of this machine knew cluster {known.formation}, and the members now hold another one, "
            f"{cluster.formation}, that nobody has put there on purpose: all members were stopped at the same time, "
            f"came back empty, and a node that knew of nothing has formed it. {WAYS_BACK}"
        )
    return cluster, cluster.formation == name


async def _put_back(grid: Grid, known: Cluster) -> None:
    """Where there is nothing, let all see what was there. Raises `GridError`."""
    if await grid.get(Map.NODES, 0, MARKER) is None and await has_lost_all(grid):
        await grid.put_if_absent(Map.NODES, 0, MARKER, encode(known))


async def begin_anew(grid: Grid, known: Cluster | None = None, now_ms: int = 0) -> None:
    """Put an empty cluster in the place of one that has lost everything; one that has not is left alone, and so is
    one that somebody restores, whose marker moves while we look.

    Raises `GridError`.
    """
    stored = await grid.get(Map.NODES, 0, MARKER)
    if stored is None or not await has_lost_all(grid):
        return
    old = marker_of(stored) or known or Cluster("", 1, grid.partition_count, True)
    before = max(old.incarnation, known.incarnation if known is not None else 0)
    incarnation = max(before + 1, first_incarnation(now_ms))
    new = Cluster(secrets.token_hex(6), incarnation, old.partition_count, False, anew=True)
    await grid.replace_if_same(Map.NODES, 0, MARKER, stored, encode(new))


async def guard(
    grid: Grid,
    cluster: Cluster,
    *,
    gone_after_s: float,
    formats: Formats | None = None,
    on_another: Callable[[Cluster], None] = lambda cluster: None,
) -> None:
    """Return never; raise when this is no longer the cluster it was. `formats` knows what is declared meanwhile;
    `on_another` is told when a snapshot was restored, and it goes on as another cluster."""
    changed = trio.Event()

    def on_change(event: OwnershipEvent) -> None:
        changed.set()

    answered_s, why, odd = trio.current_time(), "", ""
    async with grid.watch_ownership(on_change):
        while True:
            try:
                found = await _look(grid, cluster if formats is None else replace(cluster, format=formats.declared))
                answered_s = trio.current_time()
                if not found.restoring:  # the node keeps out meanwhile
                    if found.formation != cluster.formation:
                        on_another(found)
                    cluster = found
                    if await has_lost_all(grid):
                        raise ClusterLost(_lost(cluster))
            except Refused:
                answered_s = trio.current_time()  # members are there, and too few: like them, we wait for the others
            except GridError as error:
                why = str(error)
            except NodeError:
                raise
            except Exception as error:  # noqa: BLE001  # an entry that is damaged, say, is no reason to end
                answered_s = trio.current_time()
                if odd != (odd := told(error)):
                    _log().error(f"the node can't see whether this is still its cluster, and goes on: {odd}")
            if trio.current_time() - answered_s > gone_after_s:
                raise GridGone(
                    f"No member has answered for {gone_after_s:g} s ({why}). "
                    "Look at the members; start the node again when they run."
                )
            changed = trio.Event()
            with trio.move_on_after(LOOK_EVERY_S):
                await changed.wait()


async def _look(grid: Grid, cluster: Cluster) -> Cluster:
    """The marker, put back if it was gone."""
    mine = encode(cluster)
    stored = await grid.get(Map.NODES, 0, MARKER)
    if stored is None:
        stored = await grid.put_if_absent(Map.NODES, 0, MARKER, mine) or mine
    found = marker_of(stored)
    if found is None:  # by whatever; we know what it said
        _log().error("the cluster's marker can't be read: it is written again", bytes=stored[:64].hex())
        await grid.replace_if_same(Map.NODES, 0, MARKER, stored, mine)
        return cluster
    if not found.restoring and found.formation != cluster.formation and not found.replaces:
        raise ClusterReplaced(
            f"This node joined cluster {cluster.formation}, and the grid now holds cluster {found.formation}: "
            f"its members were all restarted, and came back empty. {WAYS_BACK}"
        )
    return found


def _lost(cluster: Cluster) -> str:
    return (
        f"The members of cluster {cluster.formation} have come back empty (all were stopped at the same time): "
        f"all its jobs are lost. {WAYS_BACK}"
    )


def _log() -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger("tenure")
    return logger

"""Is there a cluster on these members? If not: why not, and what is to be done."""

from typing import NamedTuple

import trio

from tenure.scheduler.cluster import ALIVE_S, MARKER, Cluster, has_lost_all, marker_of
from tenure.scheduler.grid.port import Grid, Map

__all__ = ["Unformed", "standing"]

LOOKS, PAUSE_S = 4, 0.5
"""A member that fails may hide the marker for a moment, or show it as it was."""


class Unformed(NamedTuple):
    """There is none that could answer."""

    finding: str
    next_step: str


async def standing(grid: Grid) -> Cluster | Unformed:
    """The cluster, if it is formed. Who restores is watched until it is known whether anybody does. Raises
    `GridError`."""
    marker = await _marker(grid)
    if isinstance(marker, Cluster) and marker.restoring:
        later = await _later(grid, marker)
        if later is None:
            return Unformed(
                f"snapshot {marker.restoring} was being restored here, and nobody has gone on with that for "
                f"{ALIVE_S:g} s",
                "Run `tenure restore` again, to its end: nodes keep out until then.",
            )
        marker = later
    if isinstance(marker, bytes):
        return Unformed("the cluster's marker can't be read", "See `tenure repair`.")
    if marker is None:
        return Unformed("no node has run here yet", "Start one with `tenure node APP`.")
    if marker.ended:
        return Unformed(
            f"their cluster was shut down with snapshot {marker.ended}",
            "It goes on where that is restored: `tenure restore URL` there, or here with --replace.",
        )
    if marker.formed:
        if await has_lost_all(grid):
            return Unformed(
                f"the members of cluster {marker.formation} have come back empty (all were stopped at the same time): "
                "all its jobs are lost",
                "Restore a snapshot with `tenure restore`, or start a node with --begin-anew.",
            )
        return marker
    if marker.restoring:
        return Unformed(
            f"snapshot {marker.restoring} is being restored here",
            "Wait for the end of `tenure restore`: nodes and clients go on then.",
        )
    return Unformed("a node is forming a cluster here", "Wait a moment; start a node if that one has ended.")


async def _marker(grid: Grid) -> Cluster | bytes | None:
    """None if it reads absent each time; its bytes if they can't be read: nodes that live mend that at once."""
    marker: Cluster | bytes | None = None
    for n in range(LOOKS):
        if n:
            await trio.sleep(PAUSE_S)
        stored = await grid.get(Map.NODES, 0, MARKER)
        marker = marker_of(stored) or stored if stored is not None else marker
        if isinstance(marker, Cluster) and (marker.formed or marker.restoring):
            break
    return marker


async def _later(grid: Grid, marker: Cluster) -> Cluster | None:
    """What becomes of it; None if nothing does while one who restores would have been heard of."""
    with trio.move_on_after(ALIVE_S):
        while True:
            await trio.sleep(PAUSE_S)
            stored = await grid.get(Map.NODES, 0, MARKER)
            if stored is not None and (now := marker_of(stored)) not in (marker, None):
                return now
    return None

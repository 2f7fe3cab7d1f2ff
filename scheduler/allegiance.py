"""Which cluster a client publishes to, and how surely it knows.

A grid may come to hold another cluster: a snapshot was restored into it. What a client then stores in the lanes of
before is in nobody's hands, so no acknowledgement counts that comes later than `CLUSTER_KNOWN_S` after the last look
at the cluster's marker. Who restores a snapshot changes the marker first, and waits longer than that; so does who
shuts the cluster down with a snapshot, behind which nothing may be acknowledged (see `seal`). Only this client's own
sense of passing time counts.

Or it comes to hold nothing: all members were started anew. Nodes put the marker back then, so that nobody takes the
grid for a new one; a marker without any head is therefore of a cluster that is lost, and nothing that is stored there
counts.
"""

import math
from collections.abc import Callable

import trio

from tenure.scheduler.cluster import MARKER, Cluster
from tenure.scheduler.errors import Final
from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.keys import HEAD
from tenure.scheduler.settings import CLUSTER_KNOWN_S
from tenure.scheduler.wire import Head, decode

__all__ = ["LOST", "Allegiance"]

HEADS_TRIED = 16
"""Where the marker is gone, the heads that are there carry the cluster's name. Where so many are gone, all are."""
ABSENT_S = 3.0
"""A marker that reads absent for so long is."""
LOST = "the cluster's members have come back empty, and all its jobs are lost"


class Allegiance:
    """One client's."""

    def __init__(self, grid: Grid, now_s: Callable[[], float], nursery: trio.Nursery) -> None:
        self.formation = ""
        """The cluster's; empty: none was formed when we looked."""
        self.seal = ""
        """The seal that is our own: whoever shuts a cluster down goes on asking it."""
        self.why_not = ""
        """Why the cluster takes nothing, for people; empty: for no reason that we know."""
        self._is_restored = False
        self._grid, self._now_s, self._nursery = grid, now_s, nursery
        self._marker: bytes | None = None
        self._known_s = -math.inf
        self._absent_s = math.inf
        """Since when each look has found no marker."""
        self._looking = False
        self._turn = trio.Lock()

    def knows(self, formation: str) -> bool:
        """Are lanes that were begun in this cluster known in the one that is here now?"""
        return formation == self.formation or (not formation and not self._is_restored)

    def holds(self) -> bool:
        """Does an acknowledgement that comes now count?"""
        return self._now_s() - self._known_s < CLUSTER_KNOWN_S

    def is_lost(self) -> bool:
        """Is all gone that it had, as far as the last look could tell?"""
        return self.why_not == LOST

    def doubt(self) -> None:
        """The members that we knew are gone, and others have come: what we have read of them holds no more."""
        self._known_s = -math.inf

    async def renew(self) -> bool:
        """Look again, if need be: in good time, beside what goes on. False: nobody knows now; try again."""
        age_s = self._now_s() - self._known_s
        if age_s >= CLUSTER_KNOWN_S / 2:
            if age_s >= CLUSTER_KNOWN_S:
                await self._look()
            elif not self._looking:
                self._looking = True
                self._nursery.start_soon(self._look_beside)
        return self.holds()

    async def _look_beside(self) -> None:
        try:
            await self._look()
        finally:
            self._looking = False

    async def _look(self) -> None:
        async with self._turn:
            began_s = self._now_s()
            try:
                # A read may be out of date, a conditional write is not.
                if self._marker is not None and await self._is(self._marker):
                    await self._believe(began_s)
                    return
                stored = await self._grid.get(Map.NODES, 0, MARKER)
                if stored is None:
                    if await self._is_absent(began_s):
                        self._known_s = began_s
                    return
                self._absent_s = math.inf
                cluster = decode(stored, Cluster)
                self.why_not = "" if cluster.sealed in ("", self.seal) else _why_sealed(cluster)
                if not (cluster.restoring or self.why_not) and await self._is(stored):
                    self._marker, self.formation = stored, cluster.formation
                    self._is_restored = bool(cluster.restored)
                    await self._believe(began_s)
            except (GridError, Final):
                pass

    async def _believe(self, began_s: float) -> None:
        """The marker is there; it is worth something where heads are."""
        if await self._head() is None:
            self.why_not = LOST
        else:
            self._known_s, self.why_not = began_s, ""

    async def _is_absent(self, now_s: float) -> bool:
        """Is there no marker, and nothing that forbids to go on? Reads miss what is there, amid faults."""
        head = await self._head()
        if self._marker is None:
            # Not formed yet: whoever forms it goes on with what is there. With heads it is formed; we look for long
            # enough then, as we have no marker that we could put there to see whether there is none.
            self._absent_s = min(self._absent_s, now_s)
            return head is None or now_s - self._absent_s >= ABSENT_S
        # The marker's partition is lost, and the cluster is not. It is put back as nodes do: had somebody sealed the
        # cluster by it, that is undone in his sight.
        if head is None:
            self.why_not = LOST
            return False
        if not await self._is_ours(*head):
            return False
        return await self._grid.put_if_absent(Map.NODES, 0, MARKER, self._marker) is None

    async def _head(self) -> tuple[int, bytes] | None:
        for partition in range(min(HEADS_TRIED, self._grid.partition_count)):
            stored = await self._grid.get(Map.HEADS, partition, HEAD)
            if stored is not None:
                return partition, stored
        return None

    async def _is_ours(self, partition: int, head: bytes) -> bool:
        is_ours = decode(head, Head).formation == self.formation
        return is_ours and await self._grid.replace_if_same(Map.HEADS, partition, HEAD, head, head)

    async def _is(self, marker: bytes) -> bool:
        return await self._grid.replace_if_same(Map.NODES, 0, MARKER, marker, marker)


def _why_sealed(cluster: Cluster) -> str:
    if cluster.ended:
        return f"this cluster was shut down with snapshot {cluster.ended}, and goes on where that is restored"
    return "this cluster is being shut down, and takes nothing that its last snapshot would not have"

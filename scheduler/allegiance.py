"""Which cluster a client publishes to, and how surely it knows.

A grid may come to hold another cluster: a snapshot was restored into it. What a client then stores in the lanes of
before is in nobody's hands, so no acknowledgement counts that comes later than `CLUSTER_KNOWN_S` after the last look
at the cluster's marker. Who restores a snapshot changes the marker first, and waits longer than that. Only this
client's own sense of passing time counts.

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
LOST = "the cluster's members have come back empty, and all its jobs are lost"


class Allegiance:
    """One client's."""

    def __init__(self, grid: Grid, now_s: Callable[[], float], nursery: trio.Nursery) -> None:
        self.formation = ""
        """The cluster's; empty: none was formed when we looked."""
        self.is_lost = False
        """All that it had is gone, as far as the last look could tell."""
        self._is_restored = False
        self._grid, self._now_s, self._nursery = grid, now_s, nursery
        self._marker: bytes | None = None
        self._known_s = -math.inf
        self._looking = False
        self._turn = trio.Lock()

    def knows(self, formation: str) -> bool:
        """Are lanes that were begun in this cluster known in the one that is here now?"""
        return formation == self.formation or (not formation and not self._is_restored)

    def holds(self) -> bool:
        """Does an acknowledgement that comes now count?"""
        return self._now_s() - self._known_s < CLUSTER_KNOWN_S

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
                    # Not formed yet: whoever forms it goes on with what is there. Or the marker's partition is lost.
                    if self._marker is None or await self._is_in_heads():
                        self._known_s = began_s
                    else:
                        self.is_lost = True
                    return
                cluster = decode(stored, Cluster)
                if not cluster.restoring and await self._is(stored):
                    self._marker, self.formation = stored, cluster.formation
                    self._is_restored = bool(cluster.restored)
                    await self._believe(began_s)
            except (GridError, Final):
                pass

    async def _believe(self, began_s: float) -> None:
        """The marker is there; it is worth something where heads are."""
        for partition in range(min(HEADS_TRIED, self._grid.partition_count)):
            if await self._grid.get(Map.HEADS, partition, HEAD) is not None:
                self._known_s, self.is_lost = began_s, False
                return
        self.is_lost = True

    async def _is_in_heads(self) -> bool:
        for partition in range(min(HEADS_TRIED, self._grid.partition_count)):
            stored = await self._grid.get(Map.HEADS, partition, HEAD)
            if stored is not None:
                is_ours = decode(stored, Head).formation == self.formation
                return is_ours and await self._grid.replace_if_same(Map.HEADS, partition, HEAD, stored, stored)
        return False

    async def _is(self, marker: bytes) -> bool:
        return await self._grid.replace_if_same(Map.NODES, 0, MARKER, marker, marker)

"""Which cluster a client publishes to, and how surely it knows.

A grid may come to hold another cluster: a snapshot was restored into it. What a client then stores in the lanes of
before is in nobody's hands, so no acknowledgement counts that comes later than `CLUSTER_KNOWN_S` after the last look
at the cluster's marker. Who restores a snapshot changes the marker first, and waits longer than that; so does who
shuts the cluster down with a snapshot, behind which nothing may be acknowledged (see `seal`). Only this client's own
sense of passing time counts.

Or it comes to hold nothing: all members were started anew. Nodes and clients put the marker back then, so that nobody
takes the grid for a new one; a marker without any head is therefore of a cluster that is lost, and nothing that is
stored there counts.

Or it comes to hold a cluster that was not made of the one we knew: it was formed anew on members that had come back
empty. Callers are told both at once (`ClusterReplaced`): nothing that they could wait for would make it right. What is
made of a snapshot goes on for whoever knew the cluster before.
"""

import math
from collections.abc import Callable

import trio

from tenure.scheduler.cluster import MARKER, Cluster
from tenure.scheduler.errors import ClusterReplaced, Final
from tenure.scheduler.grid.port import Grid, GridError, Map, Unknown
from tenure.scheduler.keys import HEAD
from tenure.scheduler.settings import CLUSTER_KNOWN_S
from tenure.scheduler.wire import Head, decode

__all__ = ["LOST", "Allegiance"]

HEADS_TRIED = 16
"""Where the marker is gone, the heads that are there carry the cluster's name. Where so many are gone, all are."""
ABSENT_S = 3.0
"""A marker that reads absent for so long is."""
LOST_S = 1.5
"""Where each look finds no head for so long, all are gone."""
LOST = "the cluster's members have come back empty, and all its jobs are lost"


class Allegiance:
    """One client's."""

    def __init__(
        self,
        grid: Grid,
        now_s: Callable[[], float],
        nursery: trio.Nursery,
        on_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_replaced` is called when it is found that the cluster is gone: nobody need wait for it any longer."""
        self.formation = ""
        """The cluster's; empty: none was formed when we looked."""
        self.incarnation = 0
        """Its number: higher after each restore. 0: none was formed."""
        self.replaced = ""
        """What came in the place of the cluster that we knew, for people; empty: nothing, as far as the last look could
        tell."""
        self.seal = ""
        """The seal that is our own: whoever shuts a cluster down goes on asking it."""
        self.why_not = ""
        """Why the cluster takes nothing, for people; empty: for no reason that we know."""
        self._is_restored = False
        self._grid, self._now_s, self._nursery = grid, now_s, nursery
        self._marker: bytes | None = None
        self._known_s = -math.inf
        self._absent_s = self._lost_s = math.inf
        """Since when each look has found no marker; and no head."""
        self._on_replaced = on_replaced
        self._looking = False
        self._turn = trio.Lock()

    def knows(self, formation: str) -> bool:
        """Are lanes that were begun in this cluster known in the one that is here now?"""
        return formation == self.formation or (not formation and not self._is_restored)

    def holds(self, now_s: float | None = None) -> bool:
        """Does an acknowledgement that comes now (or at that time) count?"""
        return (self._now_s() if now_s is None else now_s) - self._known_s < CLUSTER_KNOWN_S

    def is_fresh(self, now_s: float) -> bool:
        """Would `renew` say yes at this time, without another look?"""
        return now_s - self._known_s < CLUSTER_KNOWN_S / 2

    def is_lost(self) -> bool:
        """Is all gone that it had, as far as the last look could tell?"""
        return self.why_not == LOST

    async def known(self) -> None:
        """As `renew`, for those who act themselves. Raises `ClusterReplaced`; `Unknown` where nobody knows now."""
        if not await self.renew():
            self.check()
            raise Unknown("nobody can say which cluster this is now")

    def check(self) -> None:
        """Raises `ClusterReplaced` where the last look found that."""
        if self.replaced:
            raise ClusterReplaced(self.replaced)

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
        asked_s = self._now_s()
        async with self._turn:
            if self._known_s >= asked_s:
                return  # another has looked while we waited for our turn
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
                if not self._goes_on_with(cluster):
                    if await self._is(stored):
                        self._lose(_replaced(self.formation, cluster.formation))
                    return
                self.replaced = ""
                self.why_not = "" if cluster.sealed in ("", self.seal) else _why_sealed(cluster)
                if not (cluster.restoring or self.why_not) and await self._is(stored):
                    self._marker, self.formation = stored, cluster.formation
                    self.incarnation = cluster.incarnation
                    self._is_restored = bool(cluster.restored)
                    await self._believe(began_s)
            except (GridError, Final):
                pass

    async def _believe(self, began_s: float) -> None:
        """The marker is there; it is worth something where heads are."""
        if await self._head() is None:
            self._miss_all(began_s)
        else:
            self._known_s, self.why_not, self.replaced, self._lost_s = began_s, "", "", math.inf

    def _goes_on_with(self, cluster: Cluster) -> bool:
        """Is this the cluster that we knew, or one made of its snapshot, or may it become that?"""
        if not self.formation or cluster.formation == self.formation or cluster.restoring:
            return True
        is_later = cluster.replaces == self.formation or cluster.incarnation > self.incarnation
        return bool(cluster.restored) and is_later

    def _miss_all(self, began_s: float) -> None:
        """No head is there. Reads miss what is there, amid faults: not for long."""
        self.why_not, self._lost_s = LOST, min(self._lost_s, began_s)
        if self._now_s() - self._lost_s >= LOST_S:
            self._lose(_lost(self.formation))

    def _lose(self, what: str) -> None:
        self._known_s, self.replaced, self.why_not = -math.inf, what, self.why_not or what
        self._on_replaced()

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
            self._miss_all(now_s)
            if self.replaced:
                await self._grid.put_if_absent(Map.NODES, 0, MARKER, self._marker)
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


def _replaced(before: str, now: str) -> str:
    return (
        f"this client knew cluster {before}, and its members now hold another one, {now}: all were stopped at the same "
        "time, and came back empty. Nothing was stored there. Restore a snapshot (`tenure restore URL --replace`), or "
        "open the client again to go on with the new cluster"
    )


def _lost(formation: str) -> str:
    return (
        f"{LOST}: those of cluster {formation} were all stopped at the same time. Restore a snapshot (`tenure restore "
        "URL`), or begin anew (`tenure node --begin-anew`) and open the client again"
    )

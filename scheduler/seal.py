"""The seal on a cluster that is being shut down with a snapshot: clients store nothing in it any more.

    put ──► settle: all clients know ──► the snapshot ──► end: for good ──► nodes leave
     │                                       │
     └──────────── given up, or failed ──────┴──► lift: clients go on ◄── nodes, when nobody holds any more

It stands in the cluster's marker. No acknowledgement of a client counts that comes `CLUSTER_KNOWN_S` after its last
look at that (see `allegiance`): so what was acknowledged before the seal is stored before the cut, and what comes later
is not acknowledged. Who has put the seal holds meanwhile (see `orders`), and ends the cluster by a compare-and-set of
the very marker that it had written: had anybody lifted the seal, nothing would end.
"""

import trio
from msgspec.structs import replace

from tenure.scheduler.cluster import ALIVE_S, MARKER, Cluster
from tenure.scheduler.errors import NotFinished
from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.settings import CLUSTER_KNOWN_S
from tenure.scheduler.snapshots.moving import move
from tenure.scheduler.wire import decode, encode

__all__ = ["Seal", "SealWatch", "lift"]

RETRY_PAUSE_S = 0.1


class Seal:
    """One shutdown's."""

    def __init__(self, grid: Grid, token: str) -> None:
        self.grid, self.token = grid, token
        self._marker: Cluster | None = None

    async def put(self) -> None:
        """Returns once it stands. Raises `NotFinished` where there is no cluster to seal, or another has sealed it."""
        while True:
            stored = await self.look()
            marker = replace(decode(stored, Cluster), sealed=self.token)
            if await move(self.grid, MARKER, [stored], encode(marker), RETRY_PAUSE_S):
                self._marker = marker
                return

    async def look(self) -> bytes:
        """The marker of a cluster that can be sealed. Raises as `put` does."""
        while True:
            try:
                stored = await self.grid.get(Map.NODES, 0, MARKER)
            except GridError:
                stored = None
            if stored is not None:
                self._check(decode(stored, Cluster))
                return stored
            await trio.sleep(RETRY_PAUSE_S)

    def _check(self, there: Cluster) -> None:
        if there.restoring or not there.formed:
            raise NotFinished("a snapshot is being restored into this cluster: wait for the end of that")
        if there.ended:
            raise NotFinished(f"this cluster was shut down with snapshot {there.ended} already: restore that")
        if there.sealed not in ("", self.token):
            raise NotFinished("somebody else is shutting this cluster down with a snapshot: wait for the end of that")

    async def settle(self) -> None:
        """Until all clients know of it, and what they were told is stored."""
        await trio.sleep(1.5 * CLUSTER_KNOWN_S)

    async def end(self, snapshot: str) -> None:
        """From now on the cluster is what was snapshotted, and nothing else. Raises `NotFinished` if the seal has not
        stood all the time."""
        assert self._marker is not None
        ended = replace(self._marker, ended=snapshot)
        if not await move(self.grid, MARKER, [encode(self._marker)], encode(ended), RETRY_PAUSE_S):
            raise NotFinished(
                "the seal was taken off meanwhile: by nodes that heard nothing of this shutdown, or others"
            )

    async def lift(self) -> None:
        """Let clients go on; does nothing where the cluster has ended."""
        while True:
            try:
                return await lift(self.grid, self.token)
            except GridError:
                await trio.sleep(RETRY_PAUSE_S)


async def lift(grid: Grid, token: str) -> None:
    """Take off a seal, if it is still this one, and not for good. Raises `GridError`."""
    while True:
        stored = await grid.get(Map.NODES, 0, MARKER)
        if stored is None:
            await trio.sleep(RETRY_PAUSE_S)
            continue
        there = decode(stored, Cluster)
        is_done = there.sealed != token or bool(there.ended)
        # A read may be out of date, a conditional write is not.
        if await grid.replace_if_same(Map.NODES, 0, MARKER, stored, stored if is_done else _lifted(there)):
            return


def _lifted(there: Cluster) -> bytes:
    return encode(replace(there, sealed=""))


class SealWatch:
    """One observer's: has who put the seal gone without a word?"""

    def __init__(self) -> None:
        self._seen = ("", 0.0)

    def abandoned(self, cluster: Cluster, holds: bool, now_s: float) -> bool:
        """`holds`: is it said that all are to hold?"""
        if not cluster.sealed or cluster.ended or holds:
            self._seen = ("", 0.0)
            return False
        token, since_s = self._seen
        if token != cluster.sealed:
            self._seen = (cluster.sealed, now_s)
            return False
        return now_s - since_s >= ALIVE_S

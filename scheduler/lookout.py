"""What a node sees of the others, and of what it is told: one look at the map of nodes with each beat."""

import math
from typing import NamedTuple, Protocol, TypeVar

import trio

from tenure.scheduler.assignment import NODE_PREFIX, NodeInfo
from tenure.scheduler.cluster import MARKER, Cluster
from tenure.scheduler.errors import TenureError
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.hangs import HANG_PREFIX, Hang
from tenure.scheduler.host import Host
from tenure.scheduler.orders import HOLD, leave_key, order_key
from tenure.scheduler.snapshots.request import REQUEST
from tenure.scheduler.wire import decode

__all__ = ["Lookout", "Neighbours", "Seen"]

T = TypeVar("T")
LATENESS_FADES, LATENESS_SHARED = 0.8, 4
"""By how much our own lateness counts less with each beat; and how many times of it others are forgiven."""
LATENESS_TOLD = 2
"""How many times the lateness that it tells of a node is forgiven."""
UNSEEN_BEATS = 3
"""Between two looks others are silent for so many beats at most. What kept us from looking, such as an outage of the
member that holds the map, kept them from beating, too."""
LISTED_S = 60.0
"""A heart that stood still for so long is no longer listed; it may come back."""


class Neighbours(Protocol):
    """Knows more of the processes beside this one than that their hearts stand still."""

    host: str
    born: int

    def is_gone(self, node: NodeInfo) -> bool:
        """Has it certainly ended?"""
        ...


class Seen(NamedTuple):
    """What there was."""

    live: dict[str, NodeInfo]
    """The nodes whose hearts beat."""
    silent: list[str]
    """Those that nobody need list any more."""
    cluster: Cluster | None
    """The marker, if it can be read."""
    order: bytes | None
    """What others want of this node."""
    request: bytes | None
    """The snapshot that is wanted."""
    holds: bool
    """All nodes are to hold."""
    hangs: dict[bytes, Hang]
    """The words of those that stand still in a turn."""


class Lookout:
    """One node's."""

    def __init__(self, host: Host, neighbours: Neighbours | None) -> None:
        self.host, self.settings, self.grid, self.neighbours = host, host.settings, host.grid, neighbours
        self._beats: dict[str, tuple[int, float]] = {}
        """node -> its last beat, and since when it is that, on trio's clock"""
        self._late_s = 0.0
        """How late we were ourselves of late."""
        self._looked_s = math.inf
        """When the last look got through."""

    def late(self, late_s: float) -> None:
        """So late was the last look."""
        self._late_s = max(late_s, LATENESS_FADES * self._late_s)

    async def look(self) -> Seen:
        """See who is alive: whose beat has moved within `gone_after_s` of our own clock. Raises `GridError`."""
        nodes: dict[str, NodeInfo] = {}
        hangs: dict[bytes, Hang] = {}
        cluster, order, leave, request, holds = None, None, None, None, False
        orders, leaves = order_key(self.host.node), leave_key(self.host.node)
        async for page in self.grid.scan(Map.NODES, 0):
            for key, value in page:
                if key.startswith(NODE_PREFIX):
                    if (info := _decoded(value, NodeInfo)) is not None:
                        nodes[info.id] = info
                elif key == MARKER:
                    cluster = _decoded(value, Cluster)
                elif key == REQUEST:
                    request = value
                elif key == orders:
                    order = value
                elif key == leaves:
                    leave = value
                elif key == HOLD:
                    holds = True
                elif key.startswith(HANG_PREFIX) and (hang := _decoded(value, Hang)) is not None:
                    hangs[key] = hang
        live, silent = self._judge(nodes)
        return Seen(live, silent, cluster, leave or order, request, holds, hangs)

    def _judge(self, nodes: dict[str, NodeInfo]) -> tuple[dict[str, NodeInfo], list[str]]:
        live, silent = {}, []
        now_s = trio.current_time()  # after the scan: it may have taken long, and we been frozen meanwhile
        self._forgive(now_s - self._looked_s - UNSEEN_BEATS * self.settings.heartbeat_s)
        self._looked_s = now_s
        for id, info in nodes.items():
            # Who was late of late may be again; and where we are, as on a machine that has too much to do, others too.
            patience_s = self.settings.gone_after_s + max(LATENESS_SHARED * self._late_s, LATENESS_TOLD * info.late_s)
            beat, since_s = self._beats.get(id, (-1, now_s))
            if info.beat != beat:
                since_s = now_s
                self._beats[id] = (info.beat, now_s)
            if self.neighbours is not None and self.neighbours.is_gone(info):
                silent.append(id)
            elif now_s - since_s < patience_s:
                live[id] = info
            elif now_s - since_s >= max(LISTED_S, patience_s):
                silent.append(id)
        for id in self._beats.keys() - nodes.keys():
            del self._beats[id]  # it has left
        return live, silent

    def _forgive(self, unseen_s: float) -> None:
        if unseen_s > 0:
            self._beats = {id: (beat, since_s + unseen_s) for id, (beat, since_s) in self._beats.items()}

    async def forget(self, silent: list[str]) -> None:
        """List these no longer, but for ourselves."""
        for id in silent:
            if id != self.host.node:
                self._beats.pop(id, None)
                try:
                    await self.grid.delete(Map.NODES, 0, NODE_PREFIX + id.encode())
                except GridError:
                    pass  # at the next beat, then


def _decoded(stored: bytes, type: type[T]) -> T | None:
    try:
        return decode(stored, type)
    except TenureError:
        return None

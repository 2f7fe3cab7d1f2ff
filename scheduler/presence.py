"""What a node says of itself: with each beat that it is there, and how it is."""

import math
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.assignment import NODE_PREFIX, RULES, NodeInfo
from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.load import Meter
from tenure.scheduler.wire import encode

if TYPE_CHECKING:
    from tenure.scheduler.lookout import Neighbours
    from tenure.scheduler.node import Node

__all__ = ["Presence"]

LATENESS_FADES = 0.97
"""By how much lateness counts less with each beat: by half in five seconds."""
LATE_TIMES_MAX = 2
"""So many times `gone_after_s` is the most that is told of: who ends after that is to be missed before long."""


class Presence:
    """One node's. Others take the node for dead when its heart stands still (see `lookout`)."""

    def __init__(self, node: "Node", name: str, pid: int, neighbours: "Neighbours | None") -> None:
        self.node, self.host, self.settings, self.grid = node, node.host, node.settings, node.grid
        self.beaten_s = -math.inf
        """When the grid has last taken a heartbeat, on trio's clock."""
        self._name, self._pid, self._neighbours = name, pid, neighbours
        self._key = NODE_PREFIX + node.host.node.encode()
        self._beat = 0
        self._late_s = 0.0
        """How late beats were of late, as it is told."""
        self._meter = Meter(node.host, node.tenures)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Beat until cancelled; started once others can see it."""
        ttl_s = max(60.0, 20 * self.settings.gone_after_s)
        seen = False
        while True:
            self._beat += 1
            try:
                self._meter.measure()
                self.host.threads.mind()
                await self.grid.set(Map.NODES, 0, self._key, encode(self.info()), ttl_s=ttl_s)
                self._beaten(trio.current_time())
                if not seen:
                    seen = True
                    task_status.started()
            except GridError:
                pass
            except Exception as error:  # noqa: BLE001  # others would take the node for dead; and it serves
                self.node.bulkhead.met("a heartbeat", error)
            await trio.sleep(self.settings.heartbeat_s)

    def _beaten(self, now_s: float) -> None:
        self._late_s *= LATENESS_FADES
        if self.beaten_s > -math.inf:
            late_s = now_s - self.beaten_s - self.settings.heartbeat_s
            self._late_s = max(self._late_s, min(late_s, LATE_TIMES_MAX * self.settings.gone_after_s))
        self.beaten_s = now_s

    async def stop(self) -> None:
        """Say that the node goes. Raises `GridError`."""
        await self.grid.delete(Map.NODES, 0, self._key)

    def info(self) -> NodeInfo:
        """What this node says of itself."""
        return NodeInfo(
            self.host.node,
            self._beat,
            host=self._neighbours.host if self._neighbours is not None else "",
            born=self._neighbours.born if self._neighbours is not None else 0,
            member=self.grid.ownership().paired or "",
            types={type.name: type.version for type in self.host.registry},
            draining=self.node.draining,
            allows_pickled=self.settings.allow_pickled_jobs,
            pid=self._pid,
            name=self._name,
            owned=tuple(self.node.tenures),
            lost=tuple(self.node.lost),
            follows=self.node.assignment.version,
            load=self._meter.load,
            reads=self.host.formats.reads,
            rules=RULES,
            heartbeat_s=self.settings.heartbeat_s,
            version=self.host.version,
            parked=self.node.bulkhead.shown(),
            clock_ms=self.host.now_ms(),
            threads_lost=len(self.host.threads.lost),
            place=next((launcher.place for launcher in self.host.launchers.values()), ""),
            unfit=tuple(self.host.unfit),
            cuts=True,
            names=True,
            late_s=self._late_s,
            holds=self.node.holds,
            spawned_by=self.host.spawned_by,
        )

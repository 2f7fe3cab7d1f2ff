"""Which nodes are alive: two looks, a little apart, and whose heart has beaten in between."""

import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from tenure.scheduler.assignment import NODE_PREFIX, NodeInfo
from tenure.scheduler.errors import NotDone, TenureError
from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.lookout import LATENESS_TOLD
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.wire import decode

__all__ = ["live_nodes", "patiently", "said_nodes"]

T = TypeVar("T")
PATIENCE_S = 30.0
"""As long as it takes until a member's backups have come for one that failed, and more."""
PAUSE_S = 0.1
PACE_MAX_S = 10.0
"""A node that says that its heart beats more slowly, or was later, is not waited for longer."""
LOOKS_MIN = 3
"""However long one takes."""


async def live_nodes(grid: Grid) -> list[NodeInfo]:
    """Nodes whose beat moves. Takes a few beats, or as long as other nodes would wait for one that does not beat: who
    tells that it is late of late is waited for longer. Raises `GridError`.

    Who has fallen silent just now is not told from who is slow: what must not be done while a node lives (see
    `upgrades`) asks for `said_nodes` too.
    """
    said, began_s = await said_nodes(grid), trio.current_time()
    before = {node.id: node.beat for node in said}
    pace_s = max((min(node.heartbeat_s, PACE_MAX_S) for node in said), default=0.0)
    patience_s = max(map(_patience_s, said), default=0.0)
    alive: dict[str, NodeInfo] = {}
    looks = 0
    while not before.keys() <= alive.keys() and (looks < LOOKS_MIN or trio.current_time() < began_s + patience_s):
        looks += 1
        await trio.sleep(max(NodeSettings().heartbeat_s, pace_s) * 1.5)
        alive |= {node.id: node for node in await said_nodes(grid) if before.get(node.id) != node.beat}
    return sorted(alive.values(), key=lambda node: node.id)


def _patience_s(node: NodeInfo) -> float:
    late_s = node.late_s if 0 < node.late_s < math.inf else 0.0
    return NodeSettings().gone_after_s + min(LATENESS_TOLD * late_s, PACE_MAX_S)


async def said_nodes(grid: Grid) -> list[NodeInfo]:
    """Nodes that have said that they are there, within a minute or so."""
    found = []
    async for page in grid.scan(Map.NODES, 0):
        for entry in page:
            if entry.key.startswith(NODE_PREFIX):
                try:
                    found.append(decode(entry.value, NodeInfo))
                except TenureError:
                    continue  # of a version that can't be read here
    return found


async def patiently(look: Callable[[Grid], Awaitable[T]], grid: Grid) -> T:
    """What this finds (`live_nodes`, for one), also while a member fails over. Raises `NotDone`, never `GridError`."""
    end_s = trio.current_time() + PATIENCE_S
    while True:
        try:
            return await look(grid)
        except GridError as error:
            if trio.current_time() >= end_s:
                raise NotDone(f"the members have not answered for {PATIENCE_S:g} s: {error}") from error
        await trio.sleep(PAUSE_S)

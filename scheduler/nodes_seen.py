"""Which nodes are alive: two looks, a little apart, and whose heart has beaten in between."""

import trio

from tenure.scheduler.assignment import NODE_PREFIX, NodeInfo
from tenure.scheduler.errors import TenureError
from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.wire import decode

__all__ = ["live_nodes", "said_nodes"]


async def live_nodes(grid: Grid) -> list[NodeInfo]:
    """Nodes whose beat moves. Takes a few beats. Raises `GridError`.

    Who has fallen silent just now is not told from who is slow: what must not be done while a node lives (see
    `upgrades`) asks for `said_nodes` too.
    """
    before = {node.id: node.beat for node in await said_nodes(grid)}
    alive: dict[str, NodeInfo] = {}
    for _ in range(3):
        if before.keys() <= alive.keys():
            break
        await trio.sleep(NodeSettings().heartbeat_s * 1.5)
        alive |= {node.id: node for node in await said_nodes(grid) if before.get(node.id) != node.beat}
    return sorted(alive.values(), key=lambda node: node.id)


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

"""Nodes, as they are listed and selected."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.scheduler.grid.port import Grid

__all__ = ["node_rows"]


async def node_rows(grid: "Grid") -> list[dict[str, Any]]:
    """All that have said in the last minute or so that they are there. Raises `NotDone`."""
    from tenure.scheduler.nodes_seen import live_nodes, patiently, said_nodes

    alive = {node.id: node for node in await patiently(live_nodes, grid)}
    said = {node.id: node for node in await patiently(said_nodes, grid)}
    members = {member.id: member.address for member in grid.ownership().members}
    return [
        {
            "id": node.id,
            "node": node.id,  # as selectors and jobs call it
            "name": node.name,
            "pid": node.pid,
            "state": "silent" if node.id not in alive else "draining" if node.draining else "running",
            "partitions": len(node.owned) if node.id in alive else 0,
            "lost": list(node.lost),
            "unfit": list(node.unfit),
            "parked": {str(partition): why for partition, why in node.parked.items()},
            "threads_lost": node.threads_lost,
            "member": members.get(node.member, ""),
            "version": node.version,
            "reads": list(node.reads),
            "types": dict(sorted(node.types.items())),
        }
        for node in sorted((said | alive).values(), key=lambda node: node.id)
    ]

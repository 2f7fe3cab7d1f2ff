"""How each partition stands: asked of its owner; where none answers, said so, instead of failing for all."""

from typing import Any

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import TenureError
from tenure.scheduler.grid.port import GridError
from tenure.scheduler.nodes_seen import live_nodes, patiently

__all__ = ["look_at_partitions"]


async def look_at_partitions(client: GridClient, *, timeout_s: float) -> list[dict[str, Any]]:
    """A row for each partition, with its `state`: open, lost, parked or silent.

    Parked: its node can't read what is in it, or met an error there that nobody expected; `error` says which."""
    nodes = await patiently(live_nodes, client.grid)
    lost = {partition: node.id for node in nodes for partition in node.lost}
    unfit = {partition: node.id for node in nodes for partition in node.unfit}
    stopped = {partition: (node.id, why) for node in nodes for partition, why in node.parked.items()}
    count = client.partition_count
    rows: list[dict[str, Any]] = [{"partition": n, "state": "silent", "node": ""} for n in range(count)]

    async def look(partition: int) -> None:
        if partition in lost:
            rows[partition] |= {"state": "lost", "node": lost[partition]}
            return
        if partition in stopped:
            rows[partition] |= {"state": "parked", "node": stopped[partition][0], "error": stopped[partition][1]}
            return
        try:
            status = await client.command(partition, "", {"op": "status"}, deadline_s=timeout_s if nodes else 0.5)
            rows[partition] |= {"state": "open", **status}
        except (TenureError, GridError):
            if partition in unfit:
                rows[partition] |= {"state": "parked", "node": unfit[partition]}
            # else its row says that it is silent

    async with trio.open_nursery() as nursery:
        for partition in range(count):
            nursery.start_soon(look, partition)
    return rows

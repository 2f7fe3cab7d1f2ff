"""A cluster of one's own: one member as a child process, and a node in this process that runs its job types.

It ends with whoever opened it, and so does its data: for trying things out, and for tests.
"""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
import trio

from tenure.connect import open_remote, parse_cluster, wall_clock_ms, within
from tenure.listeners import listening
from tenure.nodes.embedded import open_embedded as open_embedded_member
from tenure.nodes.launching import open_launchers
from tenure.nodes.neighbours import Neighbours
from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.grid.hazelcast import HazelcastGrid
from tenure.scheduler.grid.port import Grid
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.node import Node
from tenure.scheduler.settings import NodeSettings

__all__ = ["open_embedded"]


@asynccontextmanager
async def open_embedded(registry: Registry, settings: NodeSettings | None = None) -> AsyncIterator[Grid]:
    """A connection to a cluster that is there only for this."""
    name = f"embedded-{os.getpid()}-{secrets.token_hex(4)}"
    async with (
        open_embedded_member() as address,
        HazelcastGrid.connect(parse_cluster(address)) as grid,
        open_launchers(address, grid, ends_with_it=True) as launchers,
        trio.open_nursery() as nursery,
    ):
        cluster = await find_or_form(grid, name, now_ms=wall_clock_ms())
        host = Host(
            grid, name, registry, wall_clock_ms, cluster.formation, cluster.incarnation, settings or NodeSettings()
        )
        host.launchers = launchers
        node = Node(host, listening, name=name, pid=os.getpid(), neighbours=Neighbours())
        with within(lambda known, settings: open_remote(address, known or registry, settings)):
            await nursery.start(node.run)
        structlog.get_logger("tenure").info(
            "started an embedded cluster, of one member and a node in this process: all data is in memory, and gone "
            "when its client is closed",
            cluster=address,
        )
        yield grid
        await node.drain()
        nursery.cancel_scope.cancel()

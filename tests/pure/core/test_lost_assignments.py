"""The published assignment may be lost with the member that alone had it: nodes that saw it and nodes that did not must
come to follow one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
import trio

from tenure.listeners import listening
from tenure.scheduler.assignment import ASSIGNMENT
from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Map
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.node import Node
from tenure.scheduler.settings import NodeSettings

PARTITIONS = 6
SETTINGS = NodeSettings(heartbeat_s=0.2, gone_after_s=1.0, still_s=0.0, handoff_deadline_s=1.0)


@asynccontextmanager
async def two_nodes(cluster: MemoryCluster) -> AsyncIterator[list[Node]]:
    formed = await find_or_form(cluster.connect(), "f")
    nodes = []
    async with trio.open_nursery() as nursery:
        for name in ("node-a", "node-b"):
            host = Host(
                cluster.connect(),
                name,
                Registry(),
                lambda: round(trio.current_time() * 1000),
                formed.formation,
                formed.incarnation,
                settings=SETTINGS,
                random=Random(name),
                report=lambda text: None,
            )
            nodes.append(Node(host, listening, name=name))
            nursery.start_soon(nodes[-1].run)
            await trio.sleep(3)
        yield nodes
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("who_saw_it", [0, 1])
async def test_what_only_one_node_saw_is_published_again(
    who_saw_it: int, autojump_clock: trio.testing.MockClock
) -> None:
    cluster = MemoryCluster(partitions=PARTITIONS, members=1, backups=0)
    grid = cluster.connect()
    async with two_nodes(cluster) as nodes:
        first = await grid.get(Map.NODES, 0, ASSIGNMENT)
        assert first is not None
        one, other = nodes[who_saw_it], nodes[1 - who_saw_it]
        before = one.assignment
        # One node publishes another order, which the other never sees: the member that had it is gone.
        await one._publish(first, type(before)(before.version + 1, before.owners[::-1]))
        assert one.assignment.version == before.version + 1
        await grid.set(Map.NODES, 0, ASSIGNMENT, first)
        await trio.sleep(10)
        assert one.assignment == other.assignment
        served = [set(node.tenures) for node in nodes]
        assert served[0] | served[1] == set(range(PARTITIONS))
        assert not served[0] & served[1]
        for node, partitions in zip(nodes, served, strict=True):
            assert {p for p, owner in enumerate(node.assignment.owners) if owner == node.host.node} == partitions

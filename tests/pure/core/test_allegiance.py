"""What clients store counts in the cluster that they know, and not in what has come in its place."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import MARKER, find_or_form
from tenure.scheduler.errors import Backlogged, PartitionLost
from tenure.scheduler.grid.memory import MemoryCluster, MemoryGrid
from tenure.scheduler.grid.port import Map, OwnershipEvent
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.keys import HEAD
from tenure.scheduler.settings import CLUSTER_KNOWN_S

PARTITIONS = 5


@asynccontextmanager
async def client_of(cluster: MemoryCluster) -> AsyncIterator[GridClient]:
    async with open_client(
        cluster.connect(), registry=Registry(), now_ms=lambda: round(trio.current_time() * 1000)
    ) as client:
        yield client


async def take_heads(grid: MemoryGrid) -> list[bytes]:
    taken = []
    for partition in range(PARTITIONS):
        head = await grid.get(Map.HEADS, partition, HEAD)
        assert head is not None
        taken.append(head)
        await grid.delete(Map.HEADS, partition, HEAD)
    return taken


@pytest.mark.parametrize(("is_new", "is_marked"), [(False, True), (False, False), (True, True)])
async def test_nothing_is_acknowledged_where_all_that_a_cluster_had_is_gone(is_new: bool, is_marked: bool) -> None:
    """Nodes put the marker back when all members have come back empty; before that it is gone like the rest."""
    cluster = MemoryCluster(partitions=PARTITIONS)
    grid = cluster.connect()
    await find_or_form(grid, "f")
    async with client_of(cluster) as old, client_of(cluster) as new:
        await old.publish("job", 1)
        client = new if is_new else old
        heads = await take_heads(grid)
        if not is_marked:
            await grid.delete(Map.NODES, 0, MARKER)
        await trio.sleep(CLUSTER_KNOWN_S)
        with pytest.raises(Backlogged, match="come back empty") as caught:
            await client.publish("job", 2, deadline_s=2)
        assert caught.value.unstored == [("job", 2)]
        with pytest.raises(PartitionLost, match=r"'job'.*come back empty.*from a snapshot"):
            await client.state("job", deadline_s=2)
        for partition, head in enumerate(heads):
            await grid.put_if_absent(Map.HEADS, partition, HEAD, head)
        await client.publish("job", 3, deadline_s=2)


async def test_a_few_lost_partitions_are_not_the_loss_of_all() -> None:
    cluster = MemoryCluster(partitions=PARTITIONS)
    grid = cluster.connect()
    await find_or_form(grid, "f")
    async with client_of(cluster) as client:
        for partition in range(PARTITIONS - 1):
            await grid.delete(Map.HEADS, partition, HEAD)
        await trio.sleep(CLUSTER_KNOWN_S)
        await client.publish("job", 1, deadline_s=2)


async def test_what_was_read_of_members_that_are_gone_holds_no_more() -> None:
    cluster = MemoryCluster(partitions=PARTITIONS)
    grid = cluster.connect()
    await find_or_form(grid, "f")
    async with client_of(cluster) as client:
        await client.publish("job", 1)
        await take_heads(grid)
        client.notice(OwnershipEvent.MEMBERS)
        assert client.allegiance.holds()
        client.notice(OwnershipEvent.MERGED)
        with pytest.raises(Backlogged, match="come back empty"):
            await client.publish("job", 2, deadline_s=2)

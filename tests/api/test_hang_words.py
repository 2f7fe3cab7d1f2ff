"""Word of nodes that hang reaches the owner of the partition by the grid, whatever it was doing."""

from typing import Any

import pytest
import trio

import tenure
from tenure.scheduler.grid.port import Map
from tenure.scheduler.hangs import HANG_PREFIX, Hang, hang_key
from tenure.scheduler.keys import partition_of
from tenure.scheduler.turnid import turn_id
from tenure.scheduler.wire import encode
from tenure.testing import Cluster
from tests.api.jobs import Counter
from tests.api.test_formats import backend_of

PARTITIONS = 4


async def waiting_turn(cluster: Cluster, client: tenure.Client) -> tuple[str, Any]:
    """The turn of a message that waits for a paused job, and a grid."""
    await client.schedule(Counter, id="bad")
    assert await client.ask("bad", {"n": 1}) == 1
    await client.pause("bad")
    await client.publish("bad", {"n": 2})
    await trio.sleep(1)
    [running] = backend_of(cluster)._nodes.values()
    live = running.node.tenures[partition_of("bad", PARTITIONS)].lives.by_id["bad"]
    return turn_id("bad", live.generation, live.queue[0]), running.node.grid


@pytest.mark.tenure(nodes=1, members=1, backups=0, partitions=PARTITIONS)
async def test_word_that_comes_to_an_owner_at_work_counts(cluster: Cluster, client: tenure.Client) -> None:
    turn, grid = await waiting_turn(cluster, client)
    partition = partition_of("bad", PARTITIONS)
    for node in ("x", "y"):
        word = Hang(node, partition, "bad", turn, "app.py:3 in on_message", 1.0, ended=True)
        await grid.set(Map.NODES, 0, hang_key(node), encode(word))
    await trio.sleep(1)
    await client.resume("bad")
    await trio.sleep(2)
    described = await client.describe("bad")
    assert described["status"] == "failed"
    assert described["failure"]["error"].startswith("HungRepeatedly: 2 nodes")
    keys = [entry.key async for page in grid.scan(Map.NODES, 0) for entry in page]
    assert not [key for key in keys if key.startswith(HANG_PREFIX)]
    await client.retry("bad")
    assert await client.ask("bad", {"n": 0}) == 3


@pytest.mark.tenure(nodes=1, members=1, backups=0, partitions=PARTITIONS)
async def test_word_on_a_turn_that_is_done_goes(cluster: Cluster, client: tenure.Client) -> None:
    turn, grid = await waiting_turn(cluster, client)
    partition = partition_of("bad", PARTITIONS)
    for node, about in (("x", turn), ("y", turn + "0")):
        await grid.set(Map.NODES, 0, hang_key(node), encode(Hang(node, partition, "bad", about, "", 1.0, ended=True)))
    await trio.sleep(60)
    assert await grid.get(Map.NODES, 0, hang_key("x")) is not None  # its turn waits yet
    assert await grid.get(Map.NODES, 0, hang_key("y")) is None
    await client.resume("bad")
    await trio.sleep(2)
    assert (await client.state("bad")).total == 3  # once is no reason to give it up
    assert await grid.get(Map.NODES, 0, hang_key("x")) is None
    [running] = backend_of(cluster)._nodes.values()
    assert not running.node.tenures[partition].suspicion.is_on()


@pytest.mark.tenure(nodes=1, members=1, backups=0, partitions=PARTITIONS)
async def test_a_turn_that_somebody_stands_in_waits_until_the_word_is_taken_back(
    cluster: Cluster, client: tenure.Client
) -> None:
    turn, grid = await waiting_turn(cluster, client)
    word = Hang("x", partition_of("bad", PARTITIONS), "bad", turn, "", 600.0)
    await grid.set(Map.NODES, 0, hang_key("x"), encode(word))
    await trio.sleep(1)
    await client.resume("bad")
    await trio.sleep(30)
    assert (await client.describe("bad"))["state"]["total"] == 1
    await grid.delete(Map.NODES, 0, hang_key("x"))
    await trio.sleep(2)
    assert (await client.state("bad")).total == 3

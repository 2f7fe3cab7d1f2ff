"""What clients store counts in the cluster that they know, and not in what has come in its place."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from msgspec import msgpack
from msgspec.structs import replace

from tenure.scheduler.allegiance import LOST_S
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import MARKER, Cluster, find, find_or_form
from tenure.scheduler.errors import Backlogged, ClusterReplaced
from tenure.scheduler.grid.memory import Fault, Faults, FaultyCluster, MemoryCluster, MemoryGrid
from tenure.scheduler.grid.port import Map, OwnershipEvent
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.keys import HEAD, partition_of
from tenure.scheduler.settings import CLUSTER_KNOWN_S, ClientSettings
from tenure.scheduler.topic import Topic
from tenure.scheduler.wire import Batch, Head, decode, encode

PARTITIONS = 5


class Counter(Job):
    def on_message(self, ctx: object, message: int) -> None:
        """What definitions are made of."""


@asynccontextmanager
async def client_of(cluster: MemoryCluster, settings: ClientSettings | None = None) -> AsyncIterator[GridClient]:
    async with open_client(
        cluster.connect(),
        registry=Registry(JobType("counter", Counter)),
        settings=settings,
        now_ms=lambda: round(trio.current_time() * 1000),
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
        began_s = trio.current_time()
        with pytest.raises(Backlogged, match="come back empty") as backlogged:
            await client.publish("job", 2, deadline_s=LOST_S / 2)  # it may be that reads miss what is there
        assert backlogged.value.unstored == [("job", 2)]
        with pytest.raises(ClusterReplaced, match="come back empty") as caught:
            await client.publish("job", 2)
        assert caught.value.unstored == [("job", 2)]
        assert trio.current_time() - began_s < CLUSTER_KNOWN_S, "nobody waits for the deadline"
        with pytest.raises(ClusterReplaced, match=r"come back empty.*Restore a snapshot"):
            await client.state("job")
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
        with pytest.raises(ClusterReplaced, match="come back empty"):
            await client.publish("job", 2)


async def test_an_acknowledgement_that_comes_too_late_to_be_of_the_cluster_that_was_known_does_not_count() -> None:
    """The message was stored; but before its publisher heard of that, the cluster was replaced."""
    cluster = MemoryCluster(partitions=PARTITIONS)
    grid = cluster.connect()
    await find_or_form(grid, "f")
    async with client_of(cluster) as client:
        await client.publish("job", 1)
        store = client.grid.set

        async def store_and_wait(map: Map, partition: int, key: bytes, value: bytes) -> None:
            await store(map, partition, key, value)
            client.grid.set = store  # type: ignore[method-assign]
            await grid.set(Map.NODES, 0, MARKER, encode(Cluster("another", 1, PARTITIONS, True)))
            await trio.sleep(CLUSTER_KNOWN_S)

        client.grid.set = store_and_wait  # type: ignore[method-assign]
        with pytest.raises(ClusterReplaced) as caught:
            await client.publish("job", 2)
        assert caught.value.unstored == [("job", 2)]


async def restart_all(cluster: MemoryCluster) -> None:
    """All members end, and one comes that holds nothing."""
    for member in list(cluster.members):
        cluster.kill_member(member)
    cluster.add_member()
    await trio.lowlevel.checkpoint()


async def lanes_of(grid: MemoryGrid) -> int:
    """How many slots clients have written."""
    slots = 0
    for partition in range(PARTITIONS):
        async for page in grid.scan(Map.INBOX, partition):
            slots += sum(len(entry.key) == 24 for entry in page)
    return slots


def everything(client: GridClient) -> list[Callable[[], Awaitable[object]]]:
    type: JobType = client.registry["counter"]
    return [
        lambda: client.publish("job", 2),
        lambda: client.publish("job", 2, strict=True),
        lambda: client.publish_many([("a", 2), ("b", 2)]),
        lambda: client.broadcast("counter", 1),
        lambda: client.ask("job", 1),
        lambda: client.state("job"),
        lambda: client.defining.schedule(type, "other", {}),
        lambda: client.defining.want("job", "paused"),
        lambda: client.defining.want("job", "removed"),
        lambda: client.directory.describe("job"),
        lambda: client.directory.jobs(),
        lambda: client.directory.dead_letters(),
    ]


@pytest.mark.parametrize("is_formed", [False, True])
async def test_whoever_knew_the_cluster_before_hears_in_the_next_call_that_it_is_another(is_formed: bool) -> None:
    """Of each kind of call; and nothing is stored in the cluster that came in its place."""
    cluster = MemoryCluster(partitions=PARTITIONS, members=2)
    await find_or_form(cluster.connect(), "before")
    async with client_of(cluster) as client:
        await client.publish("job", 1)
        await restart_all(cluster)
        grid = cluster.connect()
        if is_formed:
            await find_or_form(grid, "after")
        for call in everything(client):
            began_s = trio.current_time()
            with pytest.raises(ClusterReplaced, match="after" if is_formed else "come back empty"):
                await call()
            assert trio.current_time() - began_s < 2.5
        assert await lanes_of(grid) == 0
        for partition in range(PARTITIONS):
            async for page in grid.scan(Map.JOBS, partition):
                assert not page
        if not is_formed:
            marker = await find(grid)
            assert marker is not None
            assert marker.formation == "before", "nobody takes it for a grid that is new"


async def test_no_job_is_called_unknown_for_what_is_read_while_a_snapshot_is_restored() -> None:
    """Definitions are cleared then, and come back. In another cluster they don't, and that is said."""
    cluster = MemoryCluster(partitions=PARTITIONS, members=2)
    grid = cluster.connect()
    await find_or_form(grid, "before")
    async with client_of(cluster) as client:
        await client.defining.schedule("counter", "job", {})
        stored = await grid.get(Map.NODES, 0, MARKER)
        assert stored is not None
        marker = decode(stored, Cluster)
        await grid.set(Map.NODES, 0, MARKER, encode(replace(marker, restoring="s1")))
        await grid.delete(Map.JOBS, partition_of("job", PARTITIONS), b"job")
        await trio.sleep(CLUSTER_KNOWN_S)
        with pytest.raises(Backlogged) as backlogged:
            await client.publish("job", 1, strict=True, deadline_s=2)
        assert backlogged.value.unstored == [("job", 1)]
        assert await grid.get(Map.JOBS, partition_of("job", PARTITIONS), b"job") is None, "nothing is put there"
        await restart_all(cluster)
        await find_or_form(cluster.connect(), "after")
        with pytest.raises(ClusterReplaced) as replaced:
            await client.publish_many([("job", 1), ("job", 2)], strict=True)
        assert replaced.value.unstored == [("job", 1), ("job", 2)]


async def reconnected(client: GridClient) -> None:
    await trio.sleep(1)
    client.notice(OwnershipEvent.RECONNECTED)


async def test_what_waited_when_the_cluster_was_lost_is_not_sent_when_it_is_back() -> None:
    """Its caller was told that it is not stored, and may have published it again by then."""
    faults = Faults()
    cluster = FaultyCluster(partitions=PARTITIONS, members=2, faults=faults)
    grid = cluster.connect()
    await find_or_form(grid, "before")
    messages: list[tuple[str | Topic, Any]] = [("job", n) for n in range(4)]
    async with client_of(cluster, ClientSettings(batch_messages_max=1)) as client:
        await client.publish("job", -1)
        heads = await take_heads(grid)
        faults.once(Fault.REFUSED, map=Map.INBOX, times=1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reconnected, client)
            with pytest.raises(ClusterReplaced) as caught:
                await client.publish_many(messages)
        assert caught.value.unstored == messages
        await trio.sleep(1)
        faults.end()
        for partition, head in enumerate(heads):
            await grid.put_if_absent(Map.HEADS, partition, HEAD, head)
        await client.publish("job", 5, deadline_s=5)
        sent = []
        async for page in grid.scan(Map.INBOX, partition_of("job", PARTITIONS)):
            for entry in page:
                sent += [msgpack.decode(envelope.body) for envelope in decode(entry.value, Batch).envelopes]
        assert sent == [-1, 5]
    assert client.sending._buffer_bytes == 0


async def test_a_client_that_only_looked_once_knows_which_cluster_it_was() -> None:
    cluster = MemoryCluster(partitions=PARTITIONS, members=1)
    await find_or_form(cluster.connect(), "before")
    async with client_of(cluster) as client:
        await restart_all(cluster)
        await find_or_form(cluster.connect(), "after")
        with pytest.raises(ClusterReplaced, match=r"before.*after"):
            await client.publish("job", 1)


async def test_those_who_wait_are_let_go() -> None:
    """Also those who wait for an answer, or for room, that can't come any more."""
    cluster = MemoryCluster(partitions=PARTITIONS, members=1)
    await find_or_form(cluster.connect(), "before")
    raised: list[ClusterReplaced] = []

    async def wait(call: Callable[[], Awaitable[object]]) -> None:
        try:
            await call()
        except ClusterReplaced as error:
            raised.append(error)

    async with (
        client_of(cluster, ClientSettings(buffer_bytes_max=100, window_slots=2)) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(wait, lambda: client.ask("job", 1, deadline_s=600))
        for n in range(9):
            nursery.start_soon(wait, lambda n=n: client.publish("job", n, deadline_s=600))  # nobody takes them
        await trio.sleep(1)
        await restart_all(cluster)
        await find_or_form(cluster.connect(), "after")
        with trio.fail_after(2 * CLUSTER_KNOWN_S):
            while nursery.child_tasks:  # noqa: ASYNC110  # in virtual time
                await trio.sleep(0.1)
        assert len(raised) >= 2, "what was not stored before never is; and there is no answer"


@pytest.mark.parametrize(
    ("marker", "goes_on"),
    [
        (Cluster("c", 2, PARTITIONS, True, restored="s", replaces="before"), True),
        (Cluster("c", 2, PARTITIONS, True, restored="s"), True),
        (Cluster("c", 1, PARTITIONS, True, restored="s"), False),
        (Cluster("c", 2, PARTITIONS, True), False),
        (Cluster("c", 1, PARTITIONS, False), False),
    ],
)
async def test_what_was_made_of_a_snapshot_goes_on(marker: Cluster, goes_on: bool) -> None:
    cluster = MemoryCluster(partitions=PARTITIONS, members=1)
    grid = cluster.connect()
    await find_or_form(grid, "before")
    async with client_of(cluster) as client:
        await client.publish("job", 1)
        for partition in range(PARTITIONS):
            await grid.set(Map.HEADS, partition, HEAD, encode(Head(marker.formation, marker.incarnation)))
        await grid.set(Map.NODES, 0, MARKER, encode(marker))
        await trio.sleep(CLUSTER_KNOWN_S)
        if goes_on:
            await client.publish("job", 2)
        else:
            with pytest.raises(ClusterReplaced):
                await client.publish("job", 2)
            # Restored in the end: the same client goes on, and what it said in vain was stored nowhere.
            restored = Cluster("d", 3, PARTITIONS, True, restored="s", replaces=marker.formation)
            for partition in range(PARTITIONS):
                await grid.set(Map.HEADS, partition, HEAD, encode(Head("d", 3)))
            await grid.set(Map.NODES, 0, MARKER, encode(restored))
            await client.publish("job", 3)

"""Formats and versions beside each other on one cluster: declared when all can, refused by name, never guessed at."""

from functools import partial
from typing import Any

import pytest
import trio
from msgspec import Raw

import tenure
from tenure.cli.partitions_seen import look_at_partitions
from tenure.scheduler import formats
from tenure.scheduler.formats import FIRST, Formats, stamp
from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import JobType, Registry
from tenure.scheduler.keys import journal_key, partition_of, slot_key
from tenure.scheduler.upgrades import finalize, formats_seen
from tenure.scheduler.wire import Batch, Envelope, Record, RecordKind
from tenure.testing import Cluster, memory_cluster
from tenure.testing.memory_cluster import MemoryBackend
from tests.api.jobs import Counter
from tests.upgrade.zipped import ZIPPED

PARTITIONS = 16


@pytest.fixture
def zipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has a second format."""
    monkeypatch.setattr(formats, "_known", {**formats._known, ZIPPED.number: ZIPPED})


def nodes_read(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Nodes that are started from now on read these."""
    monkeypatch.setattr(memory_cluster, "Host", lambda *args: Host(*args, formats=Formats(numbers)))


def backend_of(cluster: Cluster) -> MemoryBackend:
    backend = cluster._home._value
    assert isinstance(backend, MemoryBackend)
    return backend


async def written(grid: Grid) -> dict[Map, set[int]]:
    """The formats that values in the grid begin with."""
    found: dict[Map, set[int]] = {}
    for map in (Map.JOURNAL, Map.IMAGES, Map.JOBS, Map.INBOX):
        for partition in range(grid.partition_count):
            async for page in grid.scan(map, partition):
                found.setdefault(map, set()).update(entry.value[0] for entry in page)
    return found


async def test_the_new_format_is_declared_when_all_nodes_read_it(
    in_virtual_time: None, zipped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes_read(monkeypatch, FIRST)
    async with Cluster(nodes=2, members=2, partitions=PARTITIONS) as cluster, cluster.client() as client:
        grid = backend_of(cluster).grid_cluster.connect()
        await client.schedule(Counter, id="clicks")
        assert await client.ask("clicks", {"n": 1}) == 1
        nodes_read(monkeypatch, FIRST, 2)
        await cluster.add_node()
        assert (await formats_seen(grid)).newest == 2
        with pytest.raises(tenure.UpgradeUnfinished, match=r"node-0 reads 1; node-1 reads 1"):
            await finalize(grid)
        for old in (0, 1):
            await cluster.add_node()
            await cluster.drain(old)
        assert await client.ask("clicks", {"n": 1}) == 2
        assert await written(grid) == {map: {FIRST} for map in await written(grid)}
        seen = await finalize(grid)
        assert (seen.declared, seen.behind) == (2, {})
        await trio.sleep(1)
        assert await client.ask("clicks", {"n": 1}) == 3  # answered in the new format, and so it learns of it
        async with cluster.client() as newer:
            await newer.schedule(Counter, id="visits")
            await newer.publish("visits", {"n": 5})
        assert await client.ask("clicks", {"n": 1}) == 4
        assert (await client.state("visits")).total == 5
        assert 2 in (await written(grid))[Map.JOURNAL]
        assert (await written(grid))[Map.JOBS] == {FIRST, 2}
        # What was written in either is read by whoever takes over.
        await cluster.add_node()
        for node in (await cluster.nodes())[:-1]:
            await cluster.drain(node)
        assert [(await client.state(id)).total for id in ("clicks", "visits")] == [4, 5]
        assert (await finalize(grid)).declared == 2
        grid.close()


async def test_a_version_that_can_not_read_what_is_declared_is_told_by_name(
    in_virtual_time: None, zipped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(nodes=1, members=1, partitions=4) as cluster:
        async with cluster.client() as client:
            await client.schedule(Counter, id="clicks")
            await finalize(grid := backend_of(cluster).grid_cluster.connect())
            await trio.sleep(1)
            with pytest.raises(tenure.UnreadableFormat, match="node-0 can"):
                as_seen_by_an_older_node(cluster).declare(2)
            older_client(monkeypatch)
            with pytest.raises(tenure.UnreadableFormat, match="this cluster writes format 2"):
                async with cluster.client():
                    pass
            # A client that was there before: with what it learns of it.
            core = client._home._value
            core.formats._reads = frozenset({FIRST})
            await core.learn_format()
            for call in (client.publish("clicks", {"n": 1}), client.ask("clicks", {"n": 1})):
                with pytest.raises(tenure.UnreadableFormat, match="this cluster writes format 2"):
                    await call
            grid.close()


def as_seen_by_an_older_node(cluster: Cluster) -> Formats:
    older = Formats((FIRST,))
    older.readers = backend_of(cluster)._nodes[0].node.host.formats.readers
    return older


def older_client(monkeypatch: pytest.MonkeyPatch) -> None:
    from tenure.scheduler import client

    monkeypatch.setattr(client, "Formats", partial(Formats, (FIRST,)))


async def test_a_node_that_can_not_read_what_is_declared_hands_over_and_goes(
    in_virtual_time: None, zipped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(nodes=1, members=1, partitions=4) as cluster, cluster.client() as client:
        backend = backend_of(cluster)
        await client.schedule(Counter, id="clicks")
        grid = backend.grid_cluster.connect()
        await finalize(grid)
        host = backend._nodes[0].node.host
        older = Host(
            backend.grid_cluster.connect(), "older", host.registry, host.now_ms, host.formation, host.incarnation,
            formats=Formats((FIRST,)),
        )  # fmt: skip
        node = memory_cluster.Node(older, memory_cluster.listening, name="older")
        with pytest.raises(tenure.UnreadableFormat, match="node-0 can"):
            await node.run()
        assert await client.ask("clicks", {"n": 1}) == 1
        grid.close()


async def test_a_slot_that_only_another_node_reads_waits_for_that_node(
    in_virtual_time: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a node has not heard yet of what was declared: the message is neither lost nor made a dead letter."""
    nodes_read(monkeypatch, FIRST)
    async with Cluster(nodes=1, members=1, partitions=4) as cluster, cluster.client() as client:
        backend = backend_of(cluster)
        older = backend._nodes[0].node
        nodes_read(monkeypatch, FIRST, 2)
        await cluster.add_node()
        await trio.sleep(1)
        partition = next(iter(older.tenures))
        id = next(f"c{n}" for n in range(100) if partition_of(f"c{n}", 4) == partition)
        await client.schedule(Counter, id=id)
        grid = backend.grid_cluster.connect()
        slot = stamp(2) + ZIPPED.encode(Batch([Envelope(id, Raw(b"\x81\xa1n\x07"))]))
        lane = round((await cluster.now()).timestamp() * 1000) << 4
        await grid.set(Map.INBOX, partition, slot_key(b"\x99strange", lane, 0), slot)
        while partition not in older.host.unfit:  # noqa: ASYNC110  # in virtual time
            await trio.sleep(0.01)
        assert "node-1 can" in older.host.unfit[partition]
        # Both nodes live in this process: from here on it is as if only the newer one read it.
        monkeypatch.setattr(formats, "_known", {**formats._known, ZIPPED.number: ZIPPED})
        await trio.sleep(3)
        assert partition not in older.tenures
        assert (await client.state(id)).total == 7
        assert await client.dead_letters() == []
        grid.close()


async def test_a_partition_that_no_node_can_read_is_parked_and_goes_on_when_one_can(
    in_virtual_time: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(nodes=1, members=1, partitions=4) as cluster, cluster.client() as client:
        await client.schedule(Counter, id="clicks")
        assert await client.ask("clicks", {"n": 1}) == 1
        backend, partition = backend_of(cluster), partition_of("clicks", 4)
        slot = backend._nodes[0].node.tenures[partition].journal.slot
        await cluster.kill(0)
        # Written by a newer version, whose last node has gone; of a tenure that was over, so it has no effect.
        record = ZIPPED.encode(Record("x.1", "nobody", RecordKind.TURNS, 1, "x", 0))
        grid = backend.grid_cluster.connect()
        await grid.set(Map.JOURNAL, partition, journal_key(slot), stamp(2) + record)
        newer = backend._start_number()
        node = (await backend._start(newer, backend.registry)).node
        while partition not in node.host.unfit:  # noqa: ASYNC110  # in virtual time
            await trio.sleep(0.1)
        assert "format 2" in node.host.unfit[partition]
        await trio.sleep(3)
        rows = await look_at_partitions(client._home._value, timeout_s=2)
        assert [row["state"] for row in rows] == ["parked" if n == partition else "open" for n in range(4)]
        assert node.lost == {}
        monkeypatch.setattr(formats, "_known", {**formats._known, ZIPPED.number: ZIPPED})
        await trio.sleep(6)
        assert await client.ask("clicks", {"n": 1}) == 2
        grid.close()


def of_version(version: int) -> Registry:
    class Evolving(tenure.Job):
        total: int = 0

        def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> int:
            self.total += message["n"]
            return version

        @staticmethod
        def upgrade(state: dict[str, Any], before: int) -> dict[str, Any]:
            return {"total": state["total"] + 1000 * (version - before)}

    return Registry(JobType("api-evolving", Evolving, version=version))


async def test_jobs_of_a_newer_version_go_to_nodes_that_know_it(in_virtual_time: None) -> None:
    """Versions of an application beside each other: nothing runs where it isn't known, and nothing waits for long."""
    registry = of_version(1)
    async with (
        Cluster(nodes=2, members=1, partitions=8, app=registry) as cluster,
        cluster.client(registry=registry) as client,
    ):
        ids = [f"e{n}" for n in range(30)]
        await client.schedule_many([("api-evolving", id, {}) for id in ids])
        assert {await client.ask(id, {"n": 1}) for id in ids} == {1}
        newer = await cluster.add_node(of_version(2))
        ran_by = {id: await client.ask(id, {"n": 1}) for id in ids}
        assert set(ran_by.values()) == {1, 2}
        await cluster.add_node(of_version(2))
        await cluster.kill(newer)
        # What was upgraded may lie with an older node now. It runs where it can be run, and is never read by others.
        again = {id: await client.ask(id, {"n": 1}) for id in ids}
        assert [id for id in ids if again[id] < ran_by[id]] == []
        for id in ids:
            job = await client.describe(id)
            assert (job["stuck"], job["version"]) == ("", again[id])
            assert job["state"] == {"total": 3 + 1000 * (again[id] - 1)}


async def test_a_job_that_no_node_knows_is_parked_until_one_comes(in_virtual_time: None) -> None:
    older, newer = of_version(1), of_version(2)
    async with (
        Cluster(nodes=1, members=1, partitions=8, app=older) as cluster,
        cluster.client(registry=newer) as client,
    ):
        await client.schedule("api-evolving", id="early")
        await client.publish("early", {"n": 1})
        stuck = (await client.describe("early"))["stuck"]
        assert "version 2 of 'api-evolving', node node-0 has version 1" in stuck
        await cluster.add_node(newer)
        await trio.sleep(5)
        assert await client.ask("early", {"n": 1}) == 2
        assert (await client.describe("early"))["node"] == "node-1"
        assert (await client.state("early")).total == 2

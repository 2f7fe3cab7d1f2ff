"""Testing clusters of real processes, and the embedded one. This file is the application that their nodes run."""

import asyncio  # noqa: TID251  # asyncio's users are what is tested
from pathlib import Path

import pytest
import trio

import tenure
from tenure.testing import Cluster, SyncCluster

pytestmark = pytest.mark.cluster


@tenure.job("processes-counter")
class Counter(tenure.Job):
    total: int = 0

    def on_message(self, ctx: tenure.Context, message: int) -> int:
        self.total += message
        return self.total


IDS = [f"c{n}" for n in range(8)]


async def test_real_faults() -> None:
    """One cluster for all of them, as it takes seconds to start."""
    settings = tenure.NodeSettings(sweep_s=1.0)
    async with (
        Cluster(nodes=2, members=2, grid="hazelcast", settings=settings) as cluster,
        cluster.client() as client,
    ):
        await client.schedule_many([(Counter, id, {}) for id in IDS])
        total = 0

        async def all_count() -> None:
            nonlocal total
            total += 1
            await client.publish_many([(id, 1) for id in IDS])
            for id in IDS:
                assert (await client.state(id)).total == total

        await all_count()
        await cluster.kill(0)
        await all_count()
        assert await cluster.add_node() == 2
        await cluster.pause(1)
        await all_count()
        await cluster.unpause(1)
        await trio.sleep(1)
        await all_count()
        await cluster.drain(2)
        assert await cluster.nodes() == [1]
        await all_count()
        assert await cluster.add_member() == 2
        await cluster.kill_member(0)
        assert await cluster.members() == [1, 2]
        await all_count()
        with pytest.raises(tenure.Mistake, match="no node 0 lives; there are: 1"):
            await cluster.kill(0)
        with pytest.raises(tenure.Mistake, match="clocks can be advanced only"):
            await cluster.advance(1)


async def test_nodes_start_also_while_there_are_more_members_than_planned() -> None:
    async with Cluster(nodes=0, members=3, grid="hazelcast") as cluster, cluster.client() as client:
        await cluster.add_member()
        assert await cluster.add_node() == 0
        await client.schedule(Counter, id="a")
        await client.publish("a", 1)
        await cluster.add_member()
        assert await cluster.add_node() == 1
        assert (await client.state("a")).total == 1


def test_what_a_cluster_of_processes_can_not_be(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import nonesuch\n")
    with pytest.raises(tenure.Mistake, match="name a file or module"):
        SyncCluster(grid="hazelcast", app=tenure.Registry()).__enter__()
    with pytest.raises(tenure.BadApplication, match=r"broken\.py, line 1: ModuleNotFoundError"):
        SyncCluster(grid="hazelcast", app=broken).__enter__()


def test_a_node_that_does_not_start_says_why(tmp_path: Path) -> None:
    """The application loads here, and not there."""
    app = tmp_path / "picky.py"
    app.write_text(
        "import sys, tenure\n"
        "if 'pytest' not in sys.modules:\n"
        "    raise RuntimeError('only in tests')\n"
        "tenure.job('picky')(lambda ctx, message: 0)\n"
    )
    with pytest.raises(tenure.Final, match=r"(?s)node-0 ended while it started:.*picky\.py, line 3: RuntimeError"):
        SyncCluster(nodes=1, members=1, grid="hazelcast", app=app).__enter__()


def test_an_embedded_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    with tenure.SyncClient.embedded() as client:
        client.schedule(Counter, id="a", total=1)
        assert client.ask("a", 1) == 2
    with tenure.SyncClient.embedded() as client, pytest.raises(tenure.UnknownJob):
        client.state("a")
    said = capsys.readouterr().out
    assert said.count("started an embedded cluster") == 2, "nobody has a member without knowing it"
    assert "gone when its client is closed" in said


@pytest.mark.parametrize("kind", ["trio", "asyncio"])
def test_an_embedded_cluster_for_async_code(kind: str) -> None:
    async def main() -> None:
        async with tenure.Client.embedded() as client:
            await client.schedule(Counter, id="a", total=1)
            assert await client.ask("a", 1) == 2

    if kind == "trio":
        trio.run(main)
    else:
        asyncio.run(main())

"""Snapshots in places that fsspec reaches, from one cluster to another."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import tenure
from tenure.testing import Cluster
from tests.api.jobs import Amount, Counter

fsspec = pytest.importorskip("fsspec")
pytestmark = pytest.mark.usefixtures("in_virtual_time")

COUNTERS = [f"c-{n}" for n in range(20)]


@pytest.fixture(params=["memory", "local"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An object store (of this process), and a file system that is spoken to by way of fsspec."""
    yield "memory://bucket/backups" if request.param == "memory" else f"local://{tmp_path}/backups"
    fsspec.filesystem("memory").store.clear()


async def test_what_was_saved_elsewhere_comes_back_elsewhere(url: str, tmp_path: Path) -> None:
    async with Cluster(nodes=2, partitions=7) as cluster, cluster.client() as client:
        await client.schedule_many([(Counter, id, {"total": n}) for n, id in enumerate(COUNTERS)])
        await client.schedule(Counter, id="large", seen=[1] * 300_000)
        await client.publish_many([(id, Amount(1)) for id in COUNTERS])
        await client.publish("large", Amount(1), id="order-1")
        await client.wait("default")
        await client.pause("c-0")
        await client.publish("c-0", Amount(100))
        first = await client.snapshot(url)
        assert await client.ask("c-1", Amount(1000)) == 1002
        second = await client.snapshot(url)
        assert await client.snapshots(url) == [first, second]
        assert second["written_bytes"] < first["written_bytes"], "what is there already is not written again"
    async with Cluster(nodes=1, partitions=4) as cluster, cluster.client() as client:
        assert (await client.verify_snapshot(url))["whole"]
        assert await client.export_snapshot(url, tmp_path / "jobs.jsonl") > len(COUNTERS)
        restored = await client.restore(url, name=first["name"])
        assert (restored["jobs"], restored["partition_count"]) == (len(COUNTERS) + 1, 4)
        assert [(await client.state(id)).total for id in COUNTERS[1:]] == list(range(2, len(COUNTERS) + 1))
        await client.resume("c-0")
        assert await client.ask("c-0", Amount(0)) == 101
        await client.publish("large", Amount(1), id="order-1")
        assert len((await client.state("large")).seen) == 300_001
        assert (await client.restore(url, replace=True))["incarnation"] == restored["incarnation"] + 1
        assert await client.ask("c-1", Amount(0)) == 1002
        # Those that are older go, with what only they needed.
        third = await client.snapshot(url, keep=1)
        assert await client.snapshots(url) == [third]
        assert (await client.verify_snapshot(url))["whole"]


async def test_what_is_damaged_there_is_not_restored(url: str) -> None:
    async with Cluster(nodes=1, partitions=4) as cluster, cluster.client() as client:
        await client.schedule(Counter, id="kept")
        await client.snapshot(url)
        files, root = fsspec.core.url_to_fs(url)
        [pack] = [path for path in files.find(f"{root}/packs") if files.size(path)]
        files.pipe_file(pack, files.cat_file(pack)[:-1])
        assert not (await client.verify_snapshot(url))["whole"]
        with pytest.raises(tenure.SnapshotDamaged):
            await client.restore(url, replace=True)
        assert await client.ask("kept", Amount(1)) == 1, "nothing was changed"

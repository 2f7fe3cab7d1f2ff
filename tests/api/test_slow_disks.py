"""Virtual time waits for a disk."""

import time
from pathlib import Path

import pytest

from tenure.scheduler.snapshots import stores
from tenure.testing import Cluster
from tests.api.jobs import Counter


async def test_a_snapshot_is_taken_however_slow_the_disk_is(
    in_virtual_time: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Hours of virtual time go by in what a slow disk takes for a file, if they are let."""
    write_now = stores.Directory.write_now

    def write_slowly(self: stores.Directory, path: str, content: bytes) -> None:
        time.sleep(0.03)
        write_now(self, path, content)

    monkeypatch.setattr(stores.Directory, "write_now", write_slowly)
    async with Cluster(nodes=2, partitions=4) as cluster, cluster.client() as client:
        await client.schedule_many([(Counter, f"c-{n}", {"total": n}) for n in range(8)])
        taken = await client.snapshot(str(tmp_path))
        assert [snapshot["name"] for snapshot in await client.snapshots(str(tmp_path))] == [taken["name"]]

"""Whatever is killed with -9, the output is what it would have been. (`tenure bench spark --kills 100` does more.)"""

from random import Random

import pytest

import tenure.jobs.spark.types  # noqa: F401  # what the nodes run
from tenure.bench.spark_kills import run_with_kills
from tenure.testing import Cluster


@pytest.mark.parametrize(("streaming", "seed"), [(False, 1), (True, 25)], ids=["batch", "stream"])
async def test_killed_at_random_moments(tmp_path, streaming, seed):
    """The seeds choose what lets the run last until the third kill: jvm, driver, node; command, driver, node."""
    async with Cluster(nodes=2, partitions=4, activities="real") as cluster, cluster.client() as client:
        random = Random(seed)

        async def kill_node():
            await cluster.kill(random.choice(await cluster.nodes()))
            await cluster.add_node()

        verdict = await run_with_kills(
            client,
            "kills",
            tmp_path / "kills",
            random,
            streaming=streaming,
            kills=3,
            within_s=5,
            others={"node": kill_node},
        )
    assert verdict.status == "succeeded", verdict
    assert verdict.right, verdict
    assert verdict.drivers_at_once == 1, verdict
    assert verdict.orphans == [], verdict
    assert len(verdict.kills) == 3, verdict

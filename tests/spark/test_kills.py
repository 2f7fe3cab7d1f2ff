"""Whatever is killed with -9, the output is what it would have been. (`tenure bench spark --kills 100` does more.)"""

from random import Random

import pytest
import trio

import tenure.bench.spark_application as application
import tenure.jobs.spark.types  # noqa: F401  # what the nodes run
from tenure.bench.spark_kills import OTHERS, TARGETS, expected, kills_of, run_with_kills
from tenure.testing import Cluster

WITHIN_S = 4
"""Short, so that what lives for moments is still to come, whatever chance says."""
PATIENCE_S = 60


@pytest.mark.cluster
async def test_killed_at_random_moments(tmp_path):
    """Each of them once, in turn while a batch runs and a stream."""
    random = Random(1)
    async with (
        Cluster(nodes=2, members=3, grid="hazelcast", partitions=4, app=application.__file__) as cluster,
        cluster.client() as client,
    ):
        for number, target in enumerate((*TARGETS, *OTHERS)):
            verdict = await run_with_kills(
                client,
                target,
                tmp_path / target,
                random,
                streaming=bool(number % 2),
                targets=[target],
                within_s=WITHIN_S,
                others=kills_of(cluster, client, target),
                patience_s=PATIENCE_S,
            )
            assert verdict.kills == [target], verdict
            assert verdict.status == "succeeded", verdict
            assert verdict.right, verdict
            assert verdict.drivers_at_once == 1, verdict
            assert verdict.orphans == [], verdict


async def test_what_has_failed_is_not_right(tmp_path):
    """Whatever it had committed before."""

    async def fail(cluster):
        run = await cluster.launched()
        (tmp_path / "run" / "out").mkdir()
        (tmp_path / "run" / "out" / "part-0").write_text("".join(f"{key}: {n}\n" for key, n in expected().items()))
        await run.fail("after all", final=True)

    async with Cluster(nodes=1) as cluster, cluster.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(fail, cluster)
        verdict = await run_with_kills(
            client, "a", tmp_path / "run", Random(0), streaming=False, targets=[], within_s=0, others={}
        )
    assert (verdict.status, verdict.right) == ("failed", False)

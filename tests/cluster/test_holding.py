"""A failed job with a full mailbox, on real processes: its clients' other jobs in its partition go on at their rate."""

import pytest
import trio

import tenure
from tenure.scheduler.keys import partition_of
from tenure.testing import Cluster

pytestmark = pytest.mark.cluster

PARTITIONS, ROUNDS, ROUND_S = 7, 5, 1.0


@tenure.job("cluster-holding", retry=tenure.Retry(attempts_max=1))
class Sum(tenure.Job):
    """Fails over what is negative."""

    total: int = 0

    def on_message(self, ctx: tenure.Context, message: int) -> int:
        if message < 0:
            raise ValueError("negative")
        self.total += message
        return self.total


async def rate(client: tenure.Client, id: str) -> float:
    """Messages a second that take effect on this job, sent as fast as they are stored."""
    before, began_s = (await client.state(id)).total, trio.current_time()
    while trio.current_time() < began_s + ROUND_S:
        await client.publish_many([(id, 1)] * 100)
    total: int = await client.ask(id, 0)
    return (total - before) / (trio.current_time() - began_s)


async def test_other_jobs_of_the_client_and_partition_go_on_at_their_rate() -> None:
    good = next(f"g{n}" for n in range(1000) if partition_of(f"g{n}", PARTITIONS) == partition_of("bad", PARTITIONS))
    free: list[float] = []
    beside: list[float] = []
    async with (
        Cluster(nodes=1, members=1, grid="hazelcast", backups=0, partitions=PARTITIONS, app=__file__) as cluster,
        cluster.client() as client,
    ):
        for id in (good, "bad"):
            await client.schedule(Sum, id=id)
        await rate(client, good)  # warm
        await client.publish("bad", -1)
        with trio.fail_after(20):
            while (await client.describe("bad"))["status"] != "failed":  # noqa: ASYNC110  # in another process
                await trio.sleep(0.1)
        with pytest.raises(tenure.Backlogged, match="job 'bad' takes no more for now: it has failed: ValueError"):
            await client.publish_many([("bad", n) for n in range(500_000)], timeout_s=10)
        for _ in range(ROUNDS):
            free.append(await rate(client, good))
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(client.publish_many, [("bad", 1)] * 100)
                await trio.sleep(0.2)
                beside.append(await rate(client, good))
                nursery.cancel_scope.cancel()
        assert max(beside) >= 0.9 * max(free), (free, beside)
        began_s = trio.current_time()
        with pytest.raises(tenure.JobFailed, match="nothing was done"):
            await client.ask("bad", 1)
        assert (await client.describe("bad"))["status"] == "failed"
        assert await client.retry("bad", skip=True)
        assert trio.current_time() - began_s < 5

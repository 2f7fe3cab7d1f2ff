"""When pipelines run: now, at a time, by cron, on a message, after others; what overlaps; who takes their results."""

from datetime import timedelta

import trio

import tenure
from tenure.jobs import Finished, finished_topic
from tenure.jobs.pipelines import Grep, Pipeline, Sink, Text
from tenure.jobs.spark.types import PipelineJob, parameters
from tenure.testing import Cluster

PARTITIONS = 4


@tenure.job("test-reader-of-results")
class Reader(tenure.Job):
    """Takes what a pipeline has finished."""

    heard: list[tuple[str, dict[str, int] | None]] = []

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.subscribe(finished_topic("extract"))

    def on_message(self, ctx: tenure.Context, message: Finished) -> None:
        self.heard.append((message.status, message.result))


def pipeline(tmp_path, name="p"):
    sink = Sink(text=f"out-{name}")
    return parameters(Pipeline(name=name, source=Text("in"), stages=[Grep("a")], sink=sink, folder=str(tmp_path)))


async def nothing_is_launched(cluster, seconds=20):
    with trio.move_on_after(seconds):
        await cluster.launched()
        return False
    return True


async def test_at_a_time_and_by_cron_skipping_what_overlaps(tmp_path, autojump_clock):
    async with Cluster(nodes=1, partitions=PARTITIONS) as cluster, cluster.client() as client:
        at = await cluster.now() + timedelta(hours=1)
        await client.schedule(PipelineJob, id="once", **pipeline(tmp_path), at=at)
        await cluster.advance(3590)
        assert (await client.state("once")).starts == 0
        await cluster.advance(20)
        await (await cluster.launched()).succeed({"records": 1})
        await client.schedule(PipelineJob, id="often", **pipeline(tmp_path, "often"), cron="*/10 * * * *")
        first = await cluster.launched()
        await cluster.advance(1500)
        assert (await client.state("often")).skipped == 2
        await first.succeed({"records": 2})
        assert (await cluster.launched()).activity == "run-2"
        assert (await client.state("once")).starts == 1


async def test_queueing_and_cancelling_what_overlaps(tmp_path, autojump_clock):
    orders = [{"start": {"source": {"text": name}}} for name in "abc"]
    async with Cluster(nodes=1, partitions=PARTITIONS) as cluster, cluster.client() as client:
        await client.schedule(PipelineJob, id="q", **pipeline(tmp_path), on_demand=True, overlap="queue")
        assert await nothing_is_launched(cluster)
        answers = [await client.ask("q", order) for order in orders]
        assert answers == [{"started": "run-1"}, {"queued": 1}, {"queued": 2}]
        for name in "abc":
            run = await cluster.launched()
            assert run.work["pipeline"]["source"] == {"text": name}
            assert await nothing_is_launched(cluster, 5)
            await run.succeed({"records": 0})
        await client.schedule(PipelineJob, id="c", **pipeline(tmp_path, "c"), on_demand=True, overlap="cancel")
        await client.ask("c", orders[0])
        older = await cluster.launched()
        assert await client.ask("c", orders[1]) == {"cancelling": "run-1"}
        await older.over()
        assert (await cluster.launched()).work["pipeline"]["source"] == {"text": "b"}


async def test_after_others_and_results_are_messages(tmp_path, autojump_clock):
    async with Cluster(nodes=1, partitions=PARTITIONS) as cluster, cluster.client() as client:
        await client.schedule(Reader, id="reader")
        await client.schedule(PipelineJob, id="extract", **pipeline(tmp_path), on_demand=True)
        await client.schedule(PipelineJob, id="report", **pipeline(tmp_path, "report"), after="extract")
        assert await nothing_is_launched(cluster)
        await client.ask("extract", {"start": {}})
        await (await cluster.launched()).succeed({"records": 17})
        report = await cluster.launched()
        assert report.job == "report"
        await report.succeed({"records": 1})
        await client.ask("extract", {"start": {}})
        await (await cluster.launched()).fail("BadRecord: in:0", final=True)
        assert await nothing_is_launched(cluster)
        assert (await client.state("reader")).heard == [("succeeded", {"records": 17}), ("failed", None)]

"""A stream from one topic to another, on Spark; and what a drained node leaves as it is."""

import psutil
import trio

import tenure
from tenure.jobs.pipelines import Autoscale, Filter, Map, Pipeline, Sink, TopicSource
from tenure.jobs.spark.types import PipelineJob, parameters
from tenure.testing import Cluster
from tests.spark.helpers import FOLDER

DEADLINE_S = 240
MESSAGES = 60


@tenure.job("spark-test-listener")
class Listener(tenure.Job):
    """Keeps what the pipeline publishes."""

    heard: list[tuple[str, str]] = []

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.subscribe("totals")

    def on_message(self, ctx: tenure.Context, message: dict[str, str]) -> None:
        self.heard.append((message["key"], message["value"]))


async def test_a_stream_between_topics_goes_on_while_its_node_is_drained(tmp_path):
    declared = Pipeline(
        name="p",
        source=TopicSource("orders"),
        stages=[Map({"field": "n"}, tasks=1), Filter(f"{FOLDER}/functions.py:is_even")],
        sink=Sink(topic="totals"),
        autoscale=Autoscale(low=0, high=0.001, tasks_max=2, settle_s=0),
        master="local[2]",
        spark={"spark.driver.memory": "1g"},
        folder=str(tmp_path),
    )
    async with Cluster(nodes=2, partitions=4, activities="real") as cluster, cluster.client() as client:
        await client.schedule(Listener, id="listener")
        await client.schedule(PipelineJob, id="p", **parameters(declared))
        await client.state("p")  # it has subscribed
        await published(client, range(MESSAGES // 2))
        await heard(client, MESSAGES // 2)
        before = await client.describe("p")
        await cluster.drain(await owner(cluster, before["node"]))
        await published(client, range(MESSAGES // 2, MESSAGES))
        found = await heard(client, MESSAGES)
        after = await client.describe("p")
        await client.ask("p", {"cancel": True})
        with trio.fail_after(DEADLINE_S):
            while not (ended := (await client.describe("p"))["activities"][0])["ended_ms"]:  # noqa: ASYNC110
                await trio.sleep(0.1)
    assert sorted(found) == sorted((f"orders:{number}", str(number)) for number in range(0, MESSAGES, 2))
    assert after["node"] != before["node"]
    (then,), (now,) = before["activities"], after["activities"]
    assert [then[name] for name in ("tag", "pid", "place")] == [now[name] for name in ("tag", "pid", "place")]
    assert (now["attempt"], now["details"]["metrics"]["tasks"]) == (1, 2)
    assert ended["status"] == "cancelled"
    assert not any("tenure.jobs.spark.driver" in command_of(child) for child in psutil.Process().children())


def command_of(process):
    """What it runs; nothing, if it has ended by now."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


async def published(client, numbers):
    for number in numbers:
        await client.publish(tenure.Topic("orders"), {"n": number})


async def heard(client, messages):
    """What the listener has heard, once it is as much as so many messages give."""
    with trio.fail_after(DEADLINE_S):
        while len(found := (await client.state("listener")).heard) < (messages + 1) // 2:  # noqa: ASYNC110
            await trio.sleep(0.1)
    return found


async def owner(cluster, node):
    return next(number for number in await cluster.nodes() if node.startswith(f"node-{number}"))

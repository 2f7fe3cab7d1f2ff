"""What the flow engine's notes left open, as far as it concerns messages (see docs/heritage.md)."""

from typing import Any

import pytest
import trio

import tenure
from tenure.testing import Cluster


@tenure.job("heritage-sink", topics=("heritage-end-of-stream",))
class Sink(tenure.Job):
    """Counts what comes, and how often it is told that the stream has ended."""

    seen: list[int] = []
    ends: int = 0

    def on_message(self, ctx: tenure.Context, message: Any) -> None:
        if message == "end of stream":
            self.ends += 1
        else:
            self.seen.append(message)


async def test_a_processing_instruction_reaches_every_worker_once(autojump_clock: Any) -> None:
    """There, an instruction that did not reach one outbox was delivered again to all."""
    sinks = [f"sink-{n}" for n in range(20)]
    async with Cluster(nodes=2, members=2, partitions=7) as cluster, cluster.client() as client:
        for id in sinks:
            await client.schedule(Sink, id=id)
        await trio.sleep(1)
        await client.publish(tenure.Topic("heritage-end-of-stream"), "end of stream")
        await cluster.kill(0)
        await trio.sleep(15)
        assert [(await client.state(id)).ends for id in sinks] == [1] * len(sinks)


async def test_an_event_delivered_twice_is_processed_once(autojump_clock: Any) -> None:
    async with Cluster(nodes=2, members=2, partitions=7) as cluster, cluster.client() as client:
        await client.schedule(Sink, id="sink")
        for n in (1, 2, 2, 1, 3):
            await client.publish("sink", n, id=f"event-{n}")
        assert (await client.state("sink")).seen == [1, 2, 3]


async def send_all(client: tenure.Client) -> None:
    for n in range(10):
        await client.publish("sink", n, timeout_s=3)


async def test_nobody_blocks_for_ever_on_a_receiver_that_is_gone(autojump_clock: Any) -> None:
    """There, an enqueue to a worker that had shut down blocked, and so did the shutdown of its sender."""
    settings = tenure.ClientSettings(window_slots=2)
    async with Cluster(nodes=1, members=1, partitions=1) as cluster:
        async with cluster.client(settings=settings) as client:
            await client.schedule(Sink, id="sink")
            await cluster.kill(0)
            with pytest.raises(tenure.Backlogged) as raised:
                await send_all(client)
            unstored = [message for _, message in raised.value.unstored]
            assert unstored
            await cluster.add_node()
            await trio.sleep(10)
            seen = (await client.state("sink")).seen
        assert seen == list(range(len(seen)))
        assert set(range(10)) - set(seen) <= set(range(min(unstored), 10))


@tenure.job("heritage-source", application="flow")
class Source(tenure.Job):
    """Sends on what it gets, to a worker that is elsewhere."""

    async def on_message(self, ctx: tenure.Context, message: int) -> None:
        await trio.sleep(0.1)
        ctx.send("heritage-worker", message)


@tenure.job("heritage-worker", application="flow")
class Worker(tenure.Job):
    """Takes its time."""

    seen: list[int] = []

    async def on_message(self, ctx: tenure.Context, message: int) -> None:
        await trio.sleep(0.2)
        self.seen.append(message)


async def test_shutdown_goes_in_phases_and_nobody_is_left_with_unsent_messages(autojump_clock: Any) -> None:
    """There, the engine of a worker had shut down while a source on another one still sent to it."""
    async with Cluster(nodes=2, members=2, partitions=7) as cluster, cluster.client() as client:
        await client.schedule(Source, id="heritage-source-1")
        await client.schedule(Worker, id="heritage-worker")
        await client.publish_many([("heritage-source-1", n) for n in range(20)])
        # A node goes in the middle of it: what it had goes on with the other one.
        await client.stop("node-0", drain=True)
        await client.wait("flow")
        assert (await client.state("heritage-worker")).seen == list(range(20))
        assert await client.undeploy("flow") == 2
        assert await client.jobs() == []
        await client.stop("node-1", drain=True)
        assert await cluster.nodes() == []

"""What Clojurecast's scheduler described, and what it lost: here it must work (see docs/heritage.md)."""

from typing import Any

import trio

import tenure
from tenure.testing import Cluster


@tenure.job("heritage-loop")
class Loop(tenure.Job):
    """A run loop: it starts, it hears messages, it wakes on time, it is stopped."""

    events: list[str] = []

    def on_start(self, ctx: tenure.Context) -> None:
        self.events.append("started")
        ctx.wake_in(5)

    def on_message(self, ctx: tenure.Context, message: int) -> None:
        self.events.append(f"message {message}")

    def on_timeout(self, ctx: tenure.Context) -> None:
        self.events.append("timeout")

    def on_resume(self, ctx: tenure.Context) -> None:
        self.events.append("resumed")

    def on_stop(self, ctx: tenure.Context) -> None:
        ctx.send("heritage-log", {"of": ctx.id, "events": self.events})


@tenure.job("heritage-log")
class Log(tenure.Job):
    """Keeps what stopped jobs leave behind."""

    entries: list[dict[str, Any]] = []

    def on_message(self, ctx: tenure.Context, message: dict[str, Any]) -> None:
        self.entries.append(message)


async def test_a_job_is_called_at_start_on_messages_on_time_and_before_it_goes(autojump_clock: Any) -> None:
    async with Cluster(nodes=2, members=2, partitions=11) as cluster, cluster.client() as client:
        await client.schedule(Log, id="heritage-log")
        await client.schedule(Loop, id="loop")
        await client.publish("loop", 1)
        await trio.sleep(6)
        await client.publish("loop", 2)
        assert (await client.state("loop")).events == ["started", "message 1", "timeout", "message 2"]
        await client.unschedule("loop")
        await trio.sleep(1)
        assert (await client.state("heritage-log")).entries == [
            {"of": "loop", "events": ["started", "message 1", "timeout", "message 2"]}
        ]


async def test_messages_that_arrive_while_the_grid_moves_are_not_lost(autojump_clock: Any) -> None:
    """Clojurecast: "messages to jobs that arrive during cluster migration will be lost"."""
    ids = [f"loop-{n}" for n in range(40)]
    async with Cluster(nodes=2, members=2, partitions=11) as cluster, cluster.client() as client:
        for id in ids:
            await client.schedule(Loop, id=id)
        sent = 0

        async def keep_sending(*, task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED) -> None:
            nonlocal sent
            with trio.CancelScope() as scope:
                task_status.started(scope)
                while True:
                    with trio.CancelScope(shield=True):
                        await client.publish_many([(id, sent) for id in ids])
                    sent += 1
                    await trio.sleep(0.05)

        async with trio.open_nursery() as nursery:
            sending = await nursery.start(keep_sending)
            added = await cluster.add_node()  # a rolling upgrade, a scale-out, an outage: each moves jobs
            await cluster.add_member()
            await trio.sleep(3)
            await cluster.drain(0)
            await trio.sleep(3)
            await cluster.kill(1)
            await cluster.kill_member(0)
            await trio.sleep(10)
            sending.cancel()
        assert added == 2
        assert sent > 50
        for id in ids:
            heard = [event for event in (await client.state(id)).events if event.startswith("message")]
            assert heard == [f"message {n}" for n in range(sent)]
        assert await client.dead_letters() == []


async def test_run_loops_are_attached_again_on_the_successor(autojump_clock: Any) -> None:
    async with Cluster(nodes=1, members=2, partitions=11) as cluster, cluster.client() as client:
        await client.schedule(Loop, id="loop")
        await client.publish("loop", 1)
        await trio.sleep(6)
        await cluster.add_node()
        await cluster.drain(0)
        await client.publish("loop", 2)
        assert (await client.state("loop")).events == ["started", "message 1", "timeout", "resumed", "message 2"]

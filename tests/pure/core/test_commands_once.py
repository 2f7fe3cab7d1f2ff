"""A client asks again when an answer is late. What is not the same twice is done once, and each answer is the first."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import MARKER, Cluster
from tenure.scheduler.context import Context
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.scheduler.jobtype import Job, JobType, Registry, Retry
from tenure.scheduler.wire import encode
from tests.pure.core.bench import FORMATION, Bench, rest


class Choosy(Job):
    seen: list[int] = []

    def on_message(self, ctx: Context, message: int) -> None:
        if message == 1:
            raise ValueError("never works")
        if message == 2 and ctx.attempt < 2:
            raise ValueError("works the second time")
        self.seen.append(message)


CHOOSY = JobType("choosy", Choosy, retry=Retry(attempts_max=3, first_delay_s=5.0))


@asynccontextmanager
async def failed(bench: Bench) -> AsyncIterator[GridClient]:
    """A client, and a job that has failed on the first of three messages."""
    await bench.open(CHOOSY)
    await bench.grid().put_if_absent(Map.NODES, 0, MARKER, encode(Cluster(FORMATION, 1, 1, True)))
    await bench.define("a", "choosy")
    async with open_client(
        bench.grid(), registry=Registry(CHOOSY), now_ms=bench.now_ms, sender=b"\x01clientA"
    ) as client:
        for message in (1, 2, 3):
            await client.publish("a", message)
        await rest(30)
        assert (await client.directory.describe("a"))["status"] == "failed"
        yield client


def answers_come_late(bench: Bench) -> None:
    """A second and a half."""
    bench.faults.once(Fault.DROPPED_UNKNOWN, map=Map.REPLIES, times=7)


async def test_a_skip_that_is_asked_for_again_skips_one_message(bench: Bench) -> None:
    async with failed(bench) as client:
        command = client.command

        async def late(*arguments: Any, **options: Any) -> Any:
            if arguments[2]["op"] == "retry":
                answers_come_late(bench)
            return await command(*arguments, **options)

        client.command = late  # type: ignore[method-assign]
        assert await client.directory.retry("a", skip=True)
        await rest(30)
        letters = [(letter["message"], letter["reason"]) for letter in await client.directory.dead_letters()]
        assert letters == [(1, "Skipped")]
        assert (await client.state("a")).seen == [2, 3]


async def test_a_skip_is_done_once_though_another_owner_hears_of_it_again(bench: Bench) -> None:
    async with failed(bench) as client:
        arguments = {"op": "retry", "skip": True, "once": "x"}
        assert await client.command(0, "a", arguments)
        await bench.open(CHOOSY)
        assert await client.command(0, "a", arguments), "the first answer"
        await rest(30)
        assert (await client.state("a")).seen == [2, 3]


async def test_each_call_skips_anew(bench: Bench) -> None:
    async with failed(bench) as client:
        assert await client.directory.retry("a", skip=True)
        assert await client.directory.retry("a", skip=True)
        await rest(30)
        assert (await client.state("a")).seen == [3]


async def test_dead_letters_that_are_replayed_are_counted_though_the_answer_was_late(bench: Bench) -> None:
    async with failed(bench) as client:
        assert await client.directory.retry("a", skip=True)
        await rest(30)
        letters = await client.directory.dead_letters()
        answers_come_late(bench)
        assert await client.directory.exhume(letters, replay=False) == 1
        assert await client.directory.dead_letters() == []
        assert await client.directory.exhume(letters, replay=False) == 0


async def test_a_skip_that_is_heard_late_skips_nothing_else(bench: Bench) -> None:
    """It was for what the job had failed on then: others have dealt with that since."""
    async with failed(bench) as client:
        about = (await client.directory.describe("a"))["failure"]
        assert await client.directory.retry("a", skip=True)
        await rest(1)
        assert (await client.directory.describe("a"))["failure"]["event"] != about["event"], "the second is failing"
        arguments = {"op": "retry", "skip": True, "event": about["event"]}
        assert not await client.command(0, "a", arguments)
        await rest(30)
        assert (await client.state("a")).seen == [2, 3]


class Resuming(Choosy):
    resumed: int = 0

    def on_resume(self, ctx: Context) -> None:
        self.resumed += 1


async def test_what_is_skipped_is_what_failed_not_that_the_job_was_resumed(bench: Bench) -> None:
    resuming = JobType("resuming", Resuming, retry=Retry(attempts_max=9, first_delay_s=1000.0))
    await bench.open(resuming)
    await bench.grid().put_if_absent(Map.NODES, 0, MARKER, encode(Cluster(FORMATION, 1, 1, True)))
    await bench.define("a", "resuming")
    async with open_client(bench.grid(), registry=Registry(resuming), now_ms=bench.now_ms) as client:
        for message in (3, 1, 4):
            await client.publish("a", message)
        await rest(5)
        await bench.open(resuming)
        await rest(5)
        assert await client.directory.retry("a", skip=True)
        await rest(5)
        state = await client.state("a")
        assert (state.seen, state.resumed) == ([3, 4], 1)
        assert [letter["message"] for letter in await client.directory.dead_letters()] == [1]

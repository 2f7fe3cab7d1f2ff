"""What must not be lost, doubled or undone, whatever happens to a tenure meanwhile."""

from typing import Any

import trio

from tenure.scheduler.context import Context
from tenure.scheduler.jobtype import Job, JobType
from tests.pure.core.bench import Bench, rest


class Slow(Job):
    seen: list[int] = []

    async def on_message(self, ctx: Context, message: int) -> None:
        await trio.sleep(10)
        self.seen.append(message)


async def test_a_job_that_is_paused_and_removed_while_its_turn_runs_has_that_turn_once(bench: Bench) -> None:
    applied: list[int] = []

    class Watched(Slow):
        async def on_message(self, ctx: Context, message: int) -> None:
            await trio.sleep(10)
            applied.append(message)

    await bench.open(JobType("slow", Watched))
    await bench.define("a", "slow")
    await bench.publish("a", 1, 2)
    await rest(5)
    await bench.define("a", "slow", revision=2, wanted="paused")
    await rest(1)
    await bench.define("a", "slow", revision=3, wanted="removed")
    assert (await bench.command("reconcile", "a", revision=3)).ok
    assert applied == [1]
    letters: Any = await bench.command("dead_letters")
    assert b"JobRemoved" in bytes(letters.body)


class Resumable(Slow):
    resumed: int = 0

    async def on_resume(self, ctx: Context) -> None:
        self.resumed += 1
        await trio.sleep(10)


async def test_what_waits_for_a_job_that_is_being_resumed_survives_the_next_crash(bench: Bench) -> None:
    slow, other = JobType("slow", Resumable), JobType("other", Slow)
    first = await bench.open(slow, other)
    await bench.define("a", "slow")
    await bench.define("b", "other")
    await bench.publish("a", 1, 2, 3)
    await rest(15)
    await first.close()
    second = await bench.open(slow, other)
    await bench.publish("b", 1)  # so that something is committed while on_resume runs
    await rest(5)
    await second.kill()
    await bench.open(slow, other)
    await rest(100)
    assert (await bench.state_of("a"))["seen"] == [1, 2, 3]


async def test_steps_that_were_done_are_not_done_again_after_a_resume(bench: Bench) -> None:
    done: list[str] = []

    class Stepping(Job):
        resumed: int = 0

        async def on_resume(self, ctx: Context) -> None:
            self.resumed += 1

        async def on_message(self, ctx: Context, message: int) -> None:
            await ctx.once("charge", lambda: done.append("charge"))
            await trio.sleep(10)

    type = JobType("stepping", Stepping)
    first = await bench.open(type)
    await bench.define("a", "stepping")
    await bench.publish("a", 0)
    await rest(15)
    await bench.publish("a", 1)
    await rest(2)
    assert done == ["charge", "charge"]
    await first.kill()
    await bench.open(type)
    await rest(30)
    assert (await bench.state_of("a"))["resumed"] == 1
    assert done == ["charge", "charge"]

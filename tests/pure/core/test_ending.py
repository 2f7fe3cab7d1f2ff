"""Jobs that are to go do go, whatever else is asked of them; and what they leave behind is not their successors'."""

from typing import Any

import msgspec
import pytest
import trio

from tenure.scheduler.context import Context
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.scheduler.jobtype import Job, JobType, Retry
from tenure.scheduler.wire import Status
from tests.pure.core.bench import Bench, Opened, rest

RETRY = Retry(attempts_max=3, first_delay_s=20.0, delay_max_s=20.0)


async def described(bench: Bench, id: str = "a") -> Any:
    return msgspec.msgpack.decode((await bench.command("describe", id)).body)


async def is_gone(bench: Bench, opened: Opened, revision: int) -> bool:
    assert (await bench.command("reconcile", "a", revision=revision)).ok
    return "a" not in opened.state.jobs and "a" not in opened.state.mail


# -- asked for twice ------------------------------------------------------------------------------


class Finisher(Job):
    """Asks for its own end, after a while."""

    async def on_message(self, ctx: Context, message: float) -> None:
        await trio.sleep(message)
        if ctx.attempt == 1 and message == 0:
            raise ValueError("not this time")
        ctx.finish()

    async def on_stop(self, ctx: Context) -> None:
        stops.append(ctx.event)


stops: list[str] = []
FINISHER = JobType("finisher", Finisher, retry=RETRY)


@pytest.mark.parametrize("lasts_s", [10.0, 0.0])
async def test_a_job_that_is_removed_while_it_asks_for_its_own_end_goes(bench: Bench, lasts_s: float) -> None:
    """Its turn runs, or failed and is due again."""
    stops.clear()
    opened = await bench.open(FINISHER)
    await bench.define("a", "finisher")
    await bench.publish("a", lasts_s)
    await rest(2)
    await bench.define("a", "finisher", revision=2, wanted="removed")
    await rest(60)
    assert await is_gone(bench, opened, 2)
    assert stops == ["stopped"]


async def test_who_asked_for_its_own_end_gets_it_from_the_next_owner(bench: Bench) -> None:
    """The first one was gone before the definition said so."""
    stops.clear()
    first = await bench.open(FINISHER)
    await bench.define("a", "finisher")
    await bench.publish("a", 10.0)
    await rest(5)
    bench.faults.once(Fault.DROPPED_UNKNOWN, map=Map.JOBS, times=10_000)
    await rest(30)
    assert first.state.jobs["a"].status == Status.FINISHING
    await first.kill()
    bench.faults.end()
    second = await bench.open(FINISHER)
    await rest(60)
    assert "a" not in second.state.jobs
    assert stops == ["stopped"]


class Clinging(Job):
    """Its end fails at first."""

    async def on_message(self, ctx: Context, message: int) -> None:
        raise ValueError("never")

    async def on_stop(self, ctx: Context) -> None:
        stops.append(ctx.event)
        if len(stops) == 1:
            raise ValueError("not this time")


CLINGING = JobType("clinging", Clinging, retry=RETRY)


@pytest.mark.parametrize("skip", [True, False])
async def test_an_end_that_fails_is_tried_again_at_once_and_never_skipped(bench: Bench, skip: bool) -> None:
    stops.clear()
    opened = await bench.open(CLINGING)
    await bench.define("a", "clinging")
    await rest(1)
    await bench.define("a", "clinging", revision=2, wanted="removed")
    await rest(1)
    assert (await described(bench))["failure"]["error"] == "ValueError: not this time"
    assert (await bench.command("retry", "a", skip=skip)).ok
    await rest(1)
    assert stops == ["stopped", "stopped"]
    assert await is_gone(bench, opened, 2)


@pytest.mark.parametrize("skip", [True, False])
async def test_a_retry_does_not_keep_what_is_to_go(bench: Bench, skip: bool) -> None:
    """What failed is in the way of its end."""
    stops[:] = ["once"]
    opened = await bench.open(CLINGING)
    await bench.define("a", "clinging")
    await bench.publish("a", 1)
    await rest(1)
    await bench.define("a", "clinging", revision=2, wanted="removed")
    await rest(1)
    assert (await described(bench))["status"] == "stopping"
    assert (await bench.command("retry", "a", skip=skip)).ok
    await rest(1)
    if skip:
        assert await is_gone(bench, opened, 2)
    else:
        assert (await described(bench))["status"] == "stopping"
        await rest(100)
        assert await is_gone(bench, opened, 2)
    [letter] = opened.state.dead.values()
    assert letter.reason == ("Skipped" if skip else "JobFailed")


# -- generations ----------------------------------------------------------------------------------


class Kept(Job):
    """Keeps what happens to it."""

    log: list[Any] = []

    def on_start(self, ctx: Context) -> None:
        starts.append(ctx.turn_id)
        if "/1/" in ctx.turn_id:
            raise ValueError("not this one")
        self.log.append(ctx.event)

    async def on_message(self, ctx: Context, message: int) -> None:
        if message == 1:
            ctx.wake_in(1.0)
        elif message == 2:
            await trio.sleep(10.0)
        self.log.append(message)

    async def on_timeout(self, ctx: Context) -> None:
        self.log.append(ctx.event)


class Timed(Kept):
    """The same, and starts well."""

    def on_start(self, ctx: Context) -> None:
        self.log.append(ctx.event)


starts: list[str] = []
KEPT, TIMED = JobType("kept", Kept, retry=Retry(attempts_max=1)), JobType("timed", Timed)


async def test_who_comes_after_one_that_failed_to_start_starts_once(bench: Bench) -> None:
    starts.clear()
    first = await bench.open(KEPT)
    await bench.define("a", "kept")
    await rest(1)
    assert (await described(bench))["status"] == "failed"
    # Its removal was not seen before there was a new one.
    await bench.define("a", "kept", revision=3, generation=2)
    await rest(0.1)  # its owner has proved it
    await bench.publish("a", 5)
    assert (await bench.state_of("a"))["log"] == ["started", 5]
    assert starts == ["a/1/test/started", "a/2/test/started"]
    await rest(1)
    assert not first.state.mail
    await first.kill()
    await bench.open(KEPT)
    await bench.publish("a", 6)
    assert (await bench.state_of("a"))["log"] == ["started", 5, 6]


async def test_timers_of_the_generation_before_do_not_ring_and_its_messages_are_not_lost(bench: Bench) -> None:
    first = await bench.open(TIMED)
    await bench.define("a", "timed")
    await bench.publish("a", 1, 2)
    await rest(5)  # it has come due behind the turn that runs
    await bench.define("a", "timed", revision=2, wanted="paused")
    await rest(0.1)  # its owner has proved it
    await bench.publish("a", 5)
    await rest(10)
    found = await described(bench)
    assert (found["first_waiting"]["kind"], found["waiting"], found["running"]) == (4, 2, False)
    await bench.define("a", "timed", revision=4, generation=2)
    await rest(0.1)
    assert (await bench.state_of("a"))["log"] == ["started", 5]
    await rest(1)
    assert not first.state.mail
    await first.kill()
    await bench.open(TIMED)
    assert (await bench.state_of("a"))["log"] == ["started", 5]


async def test_ids_that_were_done_in_the_record_of_its_end_mean_nothing_to_the_next(bench: Bench) -> None:
    opened = await bench.open(TIMED)
    await bench.define("a", "timed")
    await bench.publish("a", 2)  # takes its time: what comes meanwhile is done at once, with the end
    await bench.publish("a", 3, id="order-17")
    await rest(1)
    await bench.define("a", "timed", revision=2, wanted="removed")
    await rest(1)
    begun = opened.state.next_slot
    await rest(20)
    records = [await bench.record(slot) for slot in range(begun, opened.state.next_slot)]
    (last,) = [record for record in records if record is not None and record.gone]
    assert last.unmailed == {"a": 3}
    assert opened.state.remembered == {}
    await bench.define("a", "timed", revision=3, generation=2)
    await bench.publish("a", 4, id="order-17")
    await rest(1)
    assert (await bench.state_of("a"))["log"] == ["started", 4]

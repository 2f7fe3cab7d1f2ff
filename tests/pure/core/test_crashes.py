"""A message that kills its process is found out, and nobody else suffers for it."""

from typing import Any

import msgspec
import pytest
import trio

from tenure.scheduler.context import Context
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.settings import NodeSettings
from tests.pure.core.bench import Bench, Kill9, rest


class Fragile(Job):
    seen: list[int] = []

    def on_message(self, ctx: Context, message: int) -> None:
        if message < 0:
            raise Kill9
        self.seen.append(message)


class Slow(Job):
    seen: list[int] = []

    async def on_message(self, ctx: Context, message: int) -> None:
        await trio.sleep(0.3)
        if message < 0:
            raise Kill9
        self.seen.append(message)


class Tedious(Job):
    seen: list[int] = []

    async def on_message(self, ctx: Context, message: int) -> None:
        await trio.sleep(20)
        self.seen.append(message)


async def lives_until(bench: Bench, *types: JobType, done: int) -> int:
    """Open again after each crash; returns how often it crashed until all was done."""
    for crashes in range(40):
        opened = await bench.open(*types)
        with trio.move_on_after(30):
            await opened.ended.wait()
        if not opened.ended.is_set():
            states: Any = msgspec.msgpack.decode((await bench.command("jobs")).body)
            assert len(states["jobs"]) == done
            return crashes
    raise AssertionError("it tours for ever")


def statuses(jobs: bytes) -> dict[str, str]:
    return {job["id"]: job["status"] for job in msgspec.msgpack.decode(jobs)["jobs"]}


@pytest.mark.parametrize("kind", [Fragile] * 20 + [Slow])
async def test_a_killer_fails_its_own_job_and_no_other(bench: Bench, kind: type[Job]) -> None:
    type = JobType("fragile", kind)
    ids = [f"job{n}" for n in range(30)]
    for id in ids:
        await bench.define(id, "fragile")
    await bench.send(*(bench.message(id, m) for m in (1, 2) for id in ids))
    await bench.send(bench.message("job7", -1), *(bench.message(id, m) for m in (3, 4) for id in ids))
    # Once before anything is counted, then as often as one message may. Also where jobs have not begun yet: then their
    # definitions come one by one, and small groups must not use up the patience of large ones.
    assert await lives_until(bench, type, done=30) == 1 + NodeSettings().crash_attempts_max
    found = statuses(bytes((await bench.command("jobs")).body))
    assert {id for id, status in found.items() if status != "running"} == {"job7"}
    for id in ids:
        assert (await bench.state_of(id))["seen"] == ([1, 2] if id == "job7" else [1, 2, 3, 4])
    described: Any = msgspec.msgpack.decode((await bench.command("describe", "job7")).body)
    assert "CrashedRepeatedly" in described["failure"]["error"]
    assert described["first_waiting"]["message"] == -1
    await bench.command("retry", "job7", skip=True)
    await rest(3)
    assert (await bench.state_of("job7"))["seen"] == [1, 2, 3, 4]


async def test_two_killers_are_both_found_out(bench: Bench) -> None:
    type = JobType("fragile", Fragile)
    for n in range(10):
        await bench.define(f"job{n}", "fragile")
    await bench.send(*(bench.message(f"job{n}", -1 if n in (3, 8) else n) for n in range(10)))
    await lives_until(bench, type, done=10)
    found = statuses(bytes((await bench.command("jobs")).body))
    assert {id for id, status in found.items() if status == "failed"} == {"job3", "job8"}


async def test_a_long_turn_beside_a_killer_is_not_taken_for_one(bench: Bench) -> None:
    types = JobType("fragile", Slow), JobType("tedious", Tedious)
    await bench.define("long", "tedious")
    await bench.define("bad", "fragile")
    await bench.publish("long", 1)
    await rest(0)
    await bench.publish("bad", 1, -1, 2)
    await lives_until(bench, *types, done=2)
    found = statuses(bytes((await bench.command("jobs")).body))
    assert found == {"long": "running", "bad": "failed"}
    await rest(30)
    assert (await bench.state_of("long"))["seen"] == [1]


async def test_nobody_is_counted_after_a_tenure_that_closed(bench: Bench) -> None:
    type = JobType("fragile", Fragile)
    first = await bench.open(type)
    await bench.define("a", "fragile")
    await bench.publish("a", 1)
    await rest()
    await first.close()
    second = await bench.open(type)
    await bench.publish("a", 2)
    await rest()
    for slot in range(second.state.next_slot):
        record = await bench.record(slot)
        assert record is None or not record.attempted
    assert (await bench.state_of("a"))["seen"] == [1, 2]


async def test_a_failing_message_does_not_keep_a_job_that_is_to_go(bench: Bench) -> None:
    class Failing(Job):
        async def on_message(self, ctx: Context, message: int) -> None:
            await trio.sleep(1)
            raise ValueError("never works")

    await bench.open(JobType("failing", Failing))
    await bench.define("a", "failing")
    await bench.publish("a", 1, 2)
    await rest(0.5)
    await bench.define("a", "failing", revision=2, wanted="removed")
    assert (await bench.command("reconcile", "a", revision=2)).ok
    letters: Any = msgspec.msgpack.decode((await bench.command("dead_letters")).body)
    assert [(letter["message"], letter["reason"]) for letter in letters["letters"]] == [
        (1, "JobFailed"),
        (2, "JobFailed"),
    ]
    assert statuses(bytes((await bench.command("jobs")).body)) == {}

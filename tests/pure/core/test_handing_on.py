"""What a partition hands on, to subscribers, to all jobs of a type, to other partitions: all of it arrives, once."""

from typing import Any

import pytest
import trio

from tenure.scheduler.context import Context
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.topic import Topic
from tenure.scheduler.wire import Kind
from tests.pure.core.bench import Bench, rest


class Counter(Job):
    seen: list[int] = []

    def on_message(self, ctx: Context, message: int) -> None:
        self.seen.append(message)


class Teller(Job):
    """Sends on whatever it is told."""

    topic: str = ""

    def on_message(self, ctx: Context, messages: list[int]) -> None:
        for message in messages:
            ctx.publish(Topic(self.topic) if self.topic else "a", message)


COUNTER, TELLER = JobType("counter", Counter), JobType("teller", Teller)


async def seen(bench: Bench, id: str = "a") -> list[int]:
    found: list[int] = (await bench.state_of(id))["seen"]
    return found


@pytest.mark.parametrize("wanted", [True, False])
async def test_who_has_subscribed_gets_what_is_published_next_and_who_has_not_does_not(
    bench: Bench, wanted: bool
) -> None:
    """Also where both are in one slot, and so in one record."""
    await bench.open(COUNTER)
    await bench.define("a", "counter")
    await bench.send(bench.message("news", not wanted, kind=Kind.SUBSCRIBE, source="a"))
    await rest(1)
    await bench.send(
        bench.message("news", wanted, kind=Kind.SUBSCRIBE, source="a"), bench.message("news", 1, kind=Kind.TOPIC)
    )
    await rest(1)
    assert await seen(bench) == ([1] if wanted else [])


async def test_a_broadcast_goes_to_jobs_that_are_about_to_be_made(bench: Bench) -> None:
    """They were scheduled before it; their owner is still proving that their definitions are current."""
    opened = await bench.open(COUNTER)
    grid, replace_if_same = opened.tenure.host.grid, opened.tenure.host.grid.replace_if_same
    proved = trio.Event()

    async def slow(map: Map, *arguments: Any) -> bool:
        if map is Map.JOBS:
            await proved.wait()
        return await replace_if_same(map, *arguments)

    grid.replace_if_same = slow  # type: ignore[method-assign]
    await bench.define("a", "counter")
    await bench.define("b", "teller")
    await rest(1)
    await bench.send(bench.message("counter", 1, kind=Kind.TYPE))
    await rest(1)
    assert opened.state.jobs == {}
    proved.set()
    await rest(1)
    assert await seen(bench) == [1]
    assert not opened.state.dead


@pytest.mark.parametrize("topic", ["", "news"])
async def test_all_that_a_turn_sends_arrives_in_its_order(bench: Bench, topic: str) -> None:
    await bench.open(COUNTER, TELLER)
    await bench.define("a", "counter")
    await bench.define("teller", "teller", topic=topic)
    await bench.send(bench.message("news", True, kind=Kind.SUBSCRIBE, source="a"))
    for first in (0, 100, 200):
        await bench.publish("teller", list(range(first, first + 100)))
    await rest(5)
    assert await seen(bench) == list(range(300))


@pytest.mark.parametrize("fault", [Fault.DROPPED_UNKNOWN, Fault.APPLIED_UNKNOWN])
async def test_what_has_not_arrived_is_sent_by_the_next_owner_though_what_is_behind_it_has(
    bench: Bench, fault: Fault
) -> None:
    opened = await bench.open(COUNTER, TELLER, retry_pause_s=1000.0, retry_pause_max_s=1000.0)
    await bench.define("a", "counter")
    await bench.define("teller", "teller")
    await bench.publish("teller", [])
    await rest(1)
    bench.faults.once(fault, map=Map.INBOX, connection=opened.tenure.host.grid)
    for n in (1, 2, 3):  # each in a slot of its own: the first is not known to be stored
        opened.tenure.offer_slot(*bench.slot(bench.message("teller", [n])))
        await rest(1)
    assert [n for n, _ in opened.state.outbox[0]] == [0, 1, 2]
    await opened.kill()
    await bench.open(COUNTER, TELLER)
    await rest(5)
    assert await seen(bench) == [1, 2, 3]


@pytest.mark.parametrize("is_in_an_image", [False, True])
async def test_what_has_waited_comes_first_and_in_its_order_under_the_next_owner_too(
    bench: Bench, is_in_an_image: bool
) -> None:
    opened = await bench.open(COUNTER)
    await bench.define("a", "counter", wanted="paused")
    await bench.publish("a", 1, 2)
    await bench.publish("a", 3)
    await rest(1)
    if is_in_an_image:
        await opened.tenure.images.write()
    await opened.kill()
    await bench.open(COUNTER)
    await bench.publish("a", 4)
    await bench.define("a", "counter", revision=2)
    await rest(1)
    assert await seen(bench) == [1, 2, 3, 4]

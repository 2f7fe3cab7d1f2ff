"""Remembered ids have a bound, what was promised is kept, and what is near its bound is said."""

from typing import Any

import msgspec
import trio

from tenure.scheduler.context import Context
from tenure.scheduler.grid.port import Map
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.keys import slot_key
from tenure.scheduler.wire import Batch, encode
from tests.pure.core.bench import Bench, P, rest


class Counter(Job):
    n: int = 0

    def on_message(self, ctx: Context, message: Any) -> int:
        self.n += 1
        return self.n


COUNTER = JobType("counter", Counter, remember_s=30.0)


async def test_clients_that_publish_with_ids_wait_when_too_many_are_remembered_and_none_is_forgotten_early(
    bench: Bench,
) -> None:
    opened = await bench.open(COUNTER, remembered_max=10, sweep_s=0.5)
    await bench.define("a", "counter")
    for n in range(15):
        await bench.publish("a", n, id=f"id{n}")
        await rest(0.1)
    assert opened.state.remembered_count == 10
    assert len(await bench.keys(Map.INBOX)) == 5
    assert any("remembers 10 ids of messages" in report for report in bench.reports)
    await rest(20)
    assert opened.state.remembered_count == 10  # none is forgotten before its time
    await rest(20)
    assert (await bench.state_of("a"))["n"] == 15
    await rest(40)
    assert opened.state.remembered_count == 0
    assert opened.state.remembered_bytes == 0


async def test_who_publishes_without_ids_does_not_wait(bench: Bench) -> None:
    await bench.open(COUNTER, remembered_max=3, sweep_s=0.5)
    await bench.define("a", "counter")
    for n in range(5):
        await bench.send(bench.message("a", n, id=f"id{n}" if n < 3 else ""))
        await rest(0.1)
    assert (await bench.state_of("a"))["n"] == 5


async def test_an_id_counts_for_as_long_as_was_promised_and_no_longer(bench: Bench) -> None:
    """Also where nobody has come to forget it yet."""
    opened = await bench.open(COUNTER, sweep_s=1e6)
    await bench.define("a", "counter")
    for wait_s in (29.5, 1.0, 29.0):
        await bench.publish("a", 0, id="order-17")
        await rest(wait_s)
    assert opened.state.remembered_count == 1
    assert (await bench.state_of("a"))["n"] == 2


async def test_a_new_owner_counts_what_is_remembered(bench: Bench) -> None:
    first = await bench.open(COUNTER)
    await bench.define("a", "counter")
    for n in range(5):
        await bench.publish("a", n, id=f"id{n}")
    await rest(1)
    before = (first.state.remembered_count, first.state.remembered_bytes)
    await first.tenure.images.write()
    await first.close()
    second = await bench.open(COUNTER)
    assert (second.state.remembered_count, second.state.remembered_bytes) == before
    assert before[0] == 5


async def test_what_is_near_its_bound_is_in_the_status_of_its_partition(bench: Bench) -> None:
    await bench.open(COUNTER, remembered_max=10, mailbox_messages_max=10)
    await bench.define("a", "counter")
    await bench.define("full", "counter", wanted="paused")
    assert (await status(bench))["near"] == []
    for n in range(8):
        await bench.publish("a", n, id=f"id{n}")
        await bench.publish("full", n)
    await rest(1)
    assert (await status(bench))["near"] == [
        {"what": "remembered ids", "held": 8, "limit": 10, "setting": "remembered_max"},
        {"what": "messages for 'full'", "held": 9, "limit": 10, "setting": "mailbox_messages_max"},
    ]


async def status(bench: Bench) -> dict[str, Any]:
    answer = await bench.command("status")
    found: dict[str, Any] = msgspec.msgpack.decode(answer.body)
    return found


async def test_many_short_lived_clients_are_forgotten_as_fast_as_they_come(bench: Bench) -> None:
    """One client for each publish, 150 a second: what is kept of them is what a few lifetimes bring."""
    opened = await bench.open(COUNTER, lane_lifetime_s=5.0)
    await bench.define("a", "counter")
    grid, most = bench.grid(), 0
    for n in range(6000):
        sender, lane = (n + 1).to_bytes(8, "big"), bench.now_ms()
        batch = Batch([bench.message("a", n)])
        await grid.set(Map.INBOX, P, slot_key(b"\x01" + sender[1:], lane, 0), encode(batch))
        await trio.sleep(1 / 150)
        if n > 5000:
            most = max(most, len(opened.state.cursors))
    assert opened.state.jobs["a"].turns == 6001
    assert most < 3600
    await rest(120)
    assert len(opened.state.cursors) < 50

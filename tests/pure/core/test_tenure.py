"""One tenure at work: backpressure, limits, groups, sweeps, timers, questions that make no sense."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import trio
from msgspec import Raw, Struct

from tenure.scheduler.context import Context
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import EntryEvent, Map
from tenure.scheduler.holding import BEYOND, HARD, HINT
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.keys import partition_sender, slot_key
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.wire import Answer, Batch, Kind, Record, decode, encode
from tests.pure.core.bench import CLIENT, Bench, Opened, P, rest

COMMANDS = ("reconcile", "retry", "cancel", "describe", "jobs", "status", "topics", "dead_letters", "exhume")


class Counter(Job):
    seen: list[int] = []

    def on_message(self, ctx: Context, message: int) -> None:
        self.seen.append(message)


COUNTER = JobType("counter", Counter)


async def records(bench: Bench, opened: Opened) -> list[Record]:
    found = [await bench.record(slot) for slot in range(opened.state.next_slot)]
    return [record for record in found if record is not None]


async def slots_left(bench: Bench, sender: bytes) -> int:
    return sum(key.startswith(sender) for key in await bench.keys(Map.INBOX))


# -- mailboxes ----------------------------------------------------------------------------------------


async def test_a_full_mailbox_holds_back_clients_but_not_partitions(bench: Bench) -> None:
    opened = await bench.open(COUNTER, mailbox_messages_max=4)
    await bench.define("paused", "counter", wanted="paused")
    await bench.define("other", "counter")
    for n in range(6):
        await bench.publish("paused", n)
    await bench.publish("other", 1)
    partition = partition_sender(7)
    for n in range(6):
        batch = Batch([bench.message("paused", 100 + n), bench.message("other", 100 + n)])
        await bench.grid().set(Map.INBOX, P, slot_key(partition, 1, n), encode(batch))
    await rest(5)
    assert await slots_left(bench, partition) == 0
    assert await slots_left(bench, CLIENT) > 0
    before = msgspec.msgpack.decode(opened.state.jobs["other"].state)["seen"]
    assert before == [100 + n for n in range(6)]
    await bench.define("paused", "counter", wanted="running", revision=2)
    await rest(5)
    assert await slots_left(bench, CLIENT) == 0
    assert 1 in (await bench.state_of("other"))["seen"]
    assert [n for n in (await bench.state_of("paused"))["seen"] if n < 100] == list(range(6))


@pytest.mark.parametrize("exists", [True, False])
async def test_clients_are_let_go_on_when_a_full_mailbox_turns_into_dead_letters(bench: Bench, exists: bool) -> None:
    await bench.open(COUNTER, mailbox_messages_max=4, group_messages_max=2)
    await bench.define("other", "counter")
    if exists:
        await bench.define("gone", "counter", wanted="paused")
    for n in range(20):
        await bench.publish("gone", n, n)
    await bench.publish("other", 1)
    await rest(1)
    if exists:
        await bench.define("gone", "counter", wanted="removed", revision=2)
    await rest(5)
    assert (await bench.state_of("other"))["seen"] == [1]
    letters: Any = msgspec.msgpack.decode((await bench.command("dead_letters")).body)
    assert [letter["message"] for letter in letters["letters"]] == [n for n in range(20) for _ in range(2)]


async def test_clients_that_were_held_back_go_on_as_soon_as_there_is_room(bench: Bench) -> None:
    await bench.open(COUNTER, mailbox_messages_max=4, sweep_s=1000)
    await bench.define("a", "counter", wanted="paused")
    for n in range(20):
        await bench.publish("a", n)
    await rest(1)
    assert await slots_left(bench, CLIENT) > 10
    await bench.define("a", "counter", wanted="running", revision=2)
    await rest(1)
    assert (await bench.state_of("a"))["seen"] == list(range(20))


async def test_a_client_that_goes_on_though_it_could_hold_back_is_stopped_behind_a_multiple(bench: Bench) -> None:
    opened = await bench.open(COUNTER, mailbox_messages_max=2, group_messages_max=1)
    await bench.define("paused", "counter", wanted="paused")
    await bench.define("other", "counter")
    bench._sent = 5 * HARD
    for n in range(5 * HARD):
        batch = Batch([bench.message("paused", n), bench.message("other", n)], holds_back=True)
        await bench.grid().set(Map.INBOX, P, slot_key(CLIENT, 1, n), encode(batch))
    await rest(5)
    assert len(opened.state.mail["paused"]) == 2 * HARD + BEYOND
    other = msgspec.msgpack.decode(opened.state.jobs["other"].state)["seen"]
    assert len(other) == 2 * HARD + BEYOND - 1, "it was in the same slots; in the mailbox is the start, too"
    await bench.define("paused", "counter", wanted="running", revision=2)
    await rest(5)
    assert (await bench.state_of("paused"))["seen"] == list(range(5 * HARD))


async def test_a_client_is_told_once_that_a_job_is_full_and_again_if_it_goes_on(bench: Bench) -> None:
    hints: list[Answer] = []

    def hear(events: list[EntryEvent]) -> None:
        for event in events:
            hints.extend(answer for answer in decode(event.value or b"", list[Answer]) if answer.n == HINT)

    async with bench.grid().listen(Map.REPLIES, hear, key=(0, CLIENT), removals=False):
        await bench.open(COUNTER, mailbox_messages_max=2)
        await bench.define("paused", "counter", wanted="paused")
        await rest(1)
        for n in range(2 * HARD):
            batch = Batch([bench.message("paused", n)], holds_back=True)
            await bench.grid().set(Map.INBOX, P, slot_key(CLIENT, 1, n), encode(batch))
            if n == HARD:
                assert len(hints) == 1
                await rest(1.5)
        await rest(1)
        assert len(hints) == 2
        await bench.define("paused", "counter", wanted="running", revision=2)
        await rest(1)
    rows: Any = [msgspec.msgpack.decode(hint.body)["room"] for hint in hints]
    assert [(row["job"], row["full"], row["state"]) for (row,) in rows] == [
        ("paused", True, "JobPaused"),
        ("paused", True, "JobPaused"),
        ("paused", False, ""),
    ]


async def test_what_partitions_bring_beyond_all_bounds_is_counted_and_reported_not_silently_dropped(
    bench: Bench,
) -> None:
    opened = await bench.open(COUNTER, dead_letters_max=3, group_messages_max=1)
    for n in range(4 * HARD):
        batch = Batch([bench.message("nobody", n)])
        await bench.grid().set(Map.INBOX, P, slot_key(partition_sender(7), 1, n), encode(batch))
    await rest(5)
    kept = [msgspec.msgpack.decode(letter.envelope.body) for letter in opened.state.dead.values()]
    assert kept == list(range(3 * HARD))
    assert opened.state.letters_lost == (HARD, 0)
    await rest(15)
    said = [report for report in bench.reports if "dropped" in report]
    assert "a dead letter of partition 0 is dropped" in said[0]
    assert f"{HARD - 1} more dead letters were dropped in partition 0" in said[1]
    status: Any = msgspec.msgpack.decode((await bench.command("status")).body)
    assert (status["dead_letters"], status["dead_letters_dropped"]) == (3 * HARD, HARD)
    assert status["dead_letters_full"]
    await opened.kill()
    again = await bench.open(COUNTER)
    await rest(1)
    assert again.state.letters_lost == (HARD, 0)


# -- groups -------------------------------------------------------------------------------------------


async def test_a_record_holds_no_more_than_a_group_and_nobody_waits_for_a_busy_sender(bench: Bench) -> None:
    for n in range(10):
        await bench.grid().set(
            Map.INBOX, P, slot_key(CLIENT, 1, n), encode(Batch([bench.message("a", n) for _ in range(5)]))
        )
    for n in range(3):
        await bench.grid().set(
            Map.INBOX, P, slot_key(b"\x02client2", 1, n), encode(Batch([bench.message("a", 100 + n)]))
        )
    bench._sent = 10
    await bench.define("a", "counter")
    opened = await bench.open(COUNTER, group_messages_max=10)
    await rest(5)
    groups = [record.cursors for record in await records(bench, opened) if record.cursors]
    taken = 0
    for cursors in groups:
        taken += 1
        if b"\x02client2" in cursors:
            break
    assert taken <= 2, "the second sender is served in the second group at the latest"
    assert len(groups) >= 5
    assert sorted((await bench.state_of("a"))["seen"]) == sorted(
        [n for n in range(10) for _ in range(5)] + [100, 101, 102]
    )


# -- sweeps -------------------------------------------------------------------------------------------


async def test_only_what_a_committed_cursor_has_passed_is_deleted(bench: Bench) -> None:
    opened = await bench.open(COUNTER, sweep_s=0.2)
    await bench.define("a", "counter")
    await bench.publish("a", 1)
    await rest(1)
    assert await slots_left(bench, CLIENT) == 0
    # A late try of the same slot, and a commit that does not get through.
    late = slot_key(CLIENT, 1, 0)
    await bench.grid().set(Map.INBOX, P, late, encode(Batch([bench.message("a", 1)])))
    await rest(1)
    assert late not in await bench.keys(Map.INBOX)
    bench.faults.once(Fault.DROPPED_UNKNOWN, map=Map.JOURNAL, times=10_000)
    taken = await bench.send(bench.message("a", 2))
    await rest(5)
    assert taken in await bench.keys(Map.INBOX)
    assert opened.tenure.inlanes.cursors[CLIENT] == (1, 2)
    assert opened.state.cursors[CLIENT] == (1, 1)
    bench.faults.end()
    await rest(5)
    assert taken not in await bench.keys(Map.INBOX)
    assert (await bench.state_of("a"))["seen"] == [1, 2]


async def test_without_a_single_event_all_is_found_by_sweeps(bench: Bench) -> None:
    await bench.open(COUNTER, hints=False)
    await bench.define("a", "counter")
    await bench.publish("a", 1, 2)
    await bench.publish("a", 3)
    await rest(60)
    assert (await bench.state_of("a"))["seen"] == [1, 2, 3]


async def test_sweeps_that_find_nothing_become_rare_until_one_finds_something(bench: Bench) -> None:
    opened = await bench.open(COUNTER, hints=False, sweep_s=1.0)
    await bench.define("a", "counter")
    swept_s: list[float] = []
    sweeping = opened.tenure.sweeping
    inbox = sweeping.inbox

    async def counted() -> None:
        swept_s.append(trio.current_time())
        await inbox()

    sweeping.inbox = counted  # type: ignore[method-assign]
    await rest(100)
    pauses_s = [later - earlier for earlier, later in pairwise(swept_s[-10:])]
    assert all(2.5 <= pause_s <= 7.6 for pause_s in pauses_s)
    await bench.publish("a", 1)
    await rest(30)
    found = next(n for n, at_s in enumerate(swept_s) if at_s > 100)
    assert swept_s[found + 1] - swept_s[found] <= 1.6
    assert (await bench.state_of("a"))["seen"] == [1]
    sweeping.soon()
    soon_s = trio.current_time()
    await rest(2.5)
    assert swept_s[-2] - soon_s < 0.1
    assert swept_s[-1] - soon_s <= 2.5


async def test_a_slot_that_overtakes_its_event_is_no_reason_to_sweep_more_often(bench: Bench) -> None:
    opened = await bench.open(COUNTER, hints=False, sweep_s=1.0)
    tenure, sweeping = opened.tenure, opened.tenure.sweeping
    await bench.define("a", "counter")
    await rest(60)
    swept_s: list[float] = []
    offer, inbox = tenure.offer_slot, sweeping.inbox
    found: list[tuple[bytes, bytes]] = []

    def late(key: bytes, value: bytes) -> bool:
        found.append((key, value))
        return offer(key, value)

    async def counted() -> None:
        swept_s.append(trio.current_time())
        await inbox()
        tenure.offer_slot = offer  # type: ignore[method-assign]
        while found:  # now come the events
            tenure.hear_slot(*found.pop())
        tenure.offer_slot = late  # type: ignore[method-assign]
        bench.nursery.start_soon(bench.publish, "a", len(swept_s))

    tenure.offer_slot, sweeping.inbox = late, counted  # type: ignore[method-assign]
    await rest(100)
    assert len(swept_s) >= 10
    assert all(later - earlier >= 2.0 for earlier, later in pairwise(swept_s))
    assert len((await bench.state_of("a"))["seen"]) >= len(swept_s) - 1


async def test_a_gap_is_read_at_once_and_then_ever_more_rarely(bench: Bench) -> None:
    opened = await bench.open(COUNTER, hints=False, sweep_s=1000)
    await bench.define("a", "counter")
    await rest(30)
    key = slot_key(CLIENT, 1, 0)
    reads: list[float] = []
    read = opened.tenure.taking._read_slots

    async def counted(keys: list[bytes]) -> None:
        reads.append(trio.current_time())
        await read(keys)

    opened.tenure.taking._read_slots = counted  # type: ignore[method-assign]
    opened.tenure.offer_slot(slot_key(CLIENT, 1, 1), encode(Batch([bench.message("a", 2)])))
    await rest(100)
    assert 5 < len(reads) < 30
    await bench.grid().set(Map.INBOX, P, key, encode(Batch([bench.message("a", 1)])))
    await rest(300)
    assert opened.state.cursors[CLIENT] == (1, 2)


async def test_one_lost_event_after_another_is_found_as_soon_as_the_first(bench: Bench) -> None:
    opened = await bench.open(COUNTER, hints=False, sweep_s=1000)
    await bench.define("a", "counter")
    await rest(30)
    slots = 40
    for n in range(slots):
        value = encode(Batch([bench.message("a", n)]))
        await bench.grid().set(Map.INBOX, P, slot_key(CLIENT, 1, n), value)
        if n % 8 == 7:  # of the others nobody tells
            opened.tenure.offer_slot(slot_key(CLIENT, 1, n), value)
            await rest(0.1)
            assert opened.state.cursors[CLIENT] == (1, n + 1)


# -- the outbox ---------------------------------------------------------------------------------------


class Sender(Job):
    sent: int = 0
    stopped: bool = False

    def on_message(self, ctx: Context, message: int) -> None:
        self.sent += 1
        ctx.send("target", "x" * 100)

    def on_timeout(self, ctx: Context) -> None:
        self.sent += 100

    def on_stop(self, ctx: Context) -> None:
        ctx.send("target", "stopped")


class Target(Job):
    got: list[str] = []

    def on_message(self, ctx: Context, message: str) -> None:
        self.got.append(message)


class Alarmed(Sender):
    def on_start(self, ctx: Context) -> None:
        ctx.wake_in(2)


OUTBOX_TYPES = JobType("sender", Sender), JobType("target", Target), JobType("alarmed", Alarmed)


async def full_outbox(bench: Bench, job: str, type: str) -> Opened:
    """A job that is parked as the partition's outbox is full."""
    opened = await bench.open(*OUTBOX_TYPES, outbox_bytes_max=150)
    await bench.define(job, type)
    await bench.define("target", "target")
    await rest(1)
    bench.faults.once(Fault.DROPPED_UNKNOWN, map=Map.INBOX, connection=opened.tenure.host.grid, times=10_000)
    for n in range(8):
        await bench.publish(job, n)
        await rest(0.1)
    await bench.until(lambda: any("OutboxFull" in report for report in bench.reports))
    return opened


async def test_a_full_outbox_parks_senders_until_there_is_room(bench: Bench) -> None:
    opened = await full_outbox(bench, "a", "sender")
    assert msgspec.msgpack.decode(opened.state.jobs["a"].state)["sent"] < 8
    bench.faults.end()
    await rest(10)
    assert (await bench.state_of("a"))["sent"] == 8
    assert len((await bench.state_of("target"))["got"]) == 8


async def test_a_timer_that_comes_due_while_its_job_is_parked_rings_afterwards(bench: Bench) -> None:
    await full_outbox(bench, "a", "alarmed")
    await rest(10)
    bench.faults.end()
    await rest(10)
    assert (await bench.state_of("a"))["sent"] == 108


async def test_a_parked_job_that_is_removed_finishes_what_was_accepted(bench: Bench) -> None:
    await full_outbox(bench, "a", "sender")
    await bench.define("a", "sender", revision=2, wanted="removed")
    await rest(2)
    bench.faults.end()
    assert (await bench.command("reconcile", "a", revision=2)).ok
    await rest(5)
    assert (await bench.state_of("target"))["got"] == ["x" * 100] * 8 + ["stopped"]


# -- closing ------------------------------------------------------------------------------------------


IDS = ("a", "b", "c")


class Waiter(Job):
    done: list[int] = []

    async def on_message(self, ctx: Context, message: int) -> None:
        await trio.sleep(message)
        self.done.append(message)


async def test_closing_lets_turns_finish_until_the_deadline_and_cancels_the_rest(bench: Bench) -> None:
    type = JobType("waiter", Waiter)
    first = await bench.open(type, drain_deadline_s=5)
    for id, seconds in (("quick", 3), ("slow", 60)):
        await bench.define(id, "waiter")
        await bench.publish(id, seconds)
    await rest(1)
    began_s = trio.current_time()
    await first.close("n2")
    assert 4.9 < trio.current_time() - began_s < 5.5
    last = (await records(bench, first))[-1]
    assert last.successor == "n2"
    assert msgspec.msgpack.decode(first.state.jobs["quick"].state)["done"] == [3]
    assert [envelope.attempts for envelope in first.state.mail["slow"]] == [0]
    second = await bench.open(type)
    assert not second.crashed
    await rest(70)
    assert (await bench.state_of("slow"))["done"] == [60]
    assert (await bench.state_of("quick"))["done"] == [3]


async def test_who_is_to_come_next_may_change_until_it_is_said(bench: Bench) -> None:
    type = JobType("waiter", Waiter)
    first = await bench.open(type, drain_deadline_s=5)
    await bench.define("a", "waiter")
    await bench.publish("a", 60)
    await rest(1)
    began_s = trio.current_time()
    first.tenure.close("n2")
    await rest(3)
    await first.close("n3")
    assert trio.current_time() - began_s < 5.5, "turns have no more time than they had"
    assert [record.successor for record in await records(bench, first) if record.successor] == ["n3"]


@pytest.mark.parametrize("amid_snapshot", [False, True])
async def test_definitions_that_no_event_told_of_are_found_at_once_when_events_were_lost(
    bench: Bench, amid_snapshot: bool
) -> None:
    first = await bench.open(JobType("counter", Job), hints=False, sweep_s=1000, definitions_sweep_s=1000)
    await rest(5)
    first.tenure.cutting.reads_definitions = lambda: amid_snapshot  # type: ignore[method-assign]
    await bench.define("a", "counter")
    await rest(5)
    assert "a" not in first.state.jobs
    first.tenure.sweep_soon()
    await rest(1)
    assert "a" in first.state.jobs


async def test_nothing_new_is_taken_while_closing(bench: Bench) -> None:
    type = JobType("waiter", Waiter)
    first = await bench.open(type, drain_deadline_s=5)
    await bench.define("a", "waiter")
    await bench.publish("a", 4)
    await rest(1)
    first.tenure.close("")
    await bench.publish("a", 1)
    await first.ended.wait()
    assert msgspec.msgpack.decode(first.state.jobs["a"].state)["done"] == [4]
    assert first.state.cursors[CLIENT] == (1, 1)
    await bench.open(type)
    await rest(5)
    assert (await bench.state_of("a"))["done"] == [4, 1]


async def test_what_has_not_begun_is_left_to_the_next_owner(bench: Bench) -> None:
    """One turn runs at a time; the others wait for it, in their jobs' queues and for their turn on this node."""
    type = JobType("waiter", Waiter)
    first = await bench.open(type, drain_deadline_s=30, turns_at_once_max=1)
    for id in IDS:
        await bench.define(id, "waiter")
        for _ in range(3):
            await bench.publish(id, 2)
    await rest(1)
    began_s = trio.current_time()
    await first.close("n2")
    assert trio.current_time() - began_s < 1.5
    done = [len(msgspec.msgpack.decode(first.state.jobs[id].state).get("done", [])) for id in IDS]
    assert sorted(done) == [0, 0, 1]
    assert {envelope.attempts for mail in first.state.mail.values() for envelope in mail} == {0}
    await bench.open(type)
    await rest(10)
    assert [(await bench.state_of(id))["done"] for id in IDS] == [[2, 2, 2]] * 3


async def test_a_job_with_much_to_do_does_not_keep_others_waiting(bench: Bench) -> None:
    await bench.open(JobType("waiter", Waiter), turns_at_once_max=1)
    for id in ("busy", "other"):
        await bench.define(id, "waiter")
    for _ in range(100):
        await bench.publish("busy", 1)
    await bench.publish("other", 1)
    await rest(30)
    assert (await bench.state_of("other"))["done"] == [1]
    assert len((await bench.state_of("busy"))["done"]) < 100


# -- steps and timers ---------------------------------------------------------------------------------


async def test_a_step_is_done_once_though_its_turn_is_tried_again(bench: Bench) -> None:
    done: list[str] = []

    class Stepping(Job):
        result: str = ""

        async def on_message(self, ctx: Context, message: int) -> None:
            async def charge() -> str:
                await trio.sleep(0.1)
                done.append(ctx.turn_id)
                return f"receipt {len(done)}"

            self.result = await ctx.once("charge", charge)
            if ctx.attempt < 3:
                raise RuntimeError("afterwards")

    opened = await bench.open(JobType("stepping", Stepping))
    await bench.define("a", "stepping")
    await bench.publish("a", 1)
    await rest(10)
    assert (await bench.state_of("a"))["result"] == "receipt 1"
    assert len(done) == 1
    assert opened.state.steps == {}
    await bench.publish("a", 2)
    await rest(10)
    assert (await bench.state_of("a"))["result"] == "receipt 2"


async def test_a_timer_that_was_set_anew_rings_once_at_its_new_time(bench: Bench) -> None:
    class Alarm(Job):
        rang: list[float] = []

        def on_message(self, ctx: Context, message: float) -> None:
            ctx.wake_in(message)

        def on_timeout(self, ctx: Context) -> None:
            self.rang.append(trio.current_time())

    opened = await bench.open(JobType("alarm", Alarm))
    await bench.define("a", "alarm")
    for _ in range(3000):
        await bench.publish("a", 5.0)
    await bench.publish("a", 20.0)
    await rest(1)
    now_s = trio.current_time()
    assert len(opened.tenure.alarms.timers) < 2100, "old entries of a timer that is set again and again are dropped"
    await rest(60)
    rang = (await bench.state_of("a"))["rang"]
    assert len(rang) == 1
    assert now_s + 18 < rang[0] < now_s + 22


async def test_timers_follow_the_wall_clock_when_it_jumps(bench: Bench) -> None:
    class Alarm(Job):
        rang: int = 0

        def on_start(self, ctx: Context) -> None:
            ctx.wake_at(datetime.fromtimestamp(ctx.now.timestamp() + 3600, UTC))

        def on_timeout(self, ctx: Context) -> None:
            self.rang += 1

    await bench.open(JobType("alarm", Alarm))
    await bench.define("a", "alarm")
    await rest(5)
    assert (await bench.state_of("a"))["rang"] == 0
    bench.skew_ms += 3600_000
    await rest(2)
    assert (await bench.state_of("a"))["rang"] == 1


async def test_a_job_whose_time_zone_is_unknown_here_is_parked_and_the_others_go_on(bench: Bench) -> None:
    class Alarm(Job):
        rang: int = 0

        def on_start(self, ctx: Context) -> None:
            ctx.cron("* * * * *", tz="UTC")

        def on_timeout(self, ctx: Context) -> None:
            self.rang += 1

    opened = await bench.open(JobType("alarm", Alarm))
    await bench.define("a", "alarm")
    await bench.define("b", "alarm")
    await rest(1)
    live = opened.tenure.lives.of("a")
    assert live.timer is not None
    live.timer = msgspec.structs.replace(live.timer, zone="Atlantis/Poseidonis")
    await rest(150)
    assert (await bench.state_of("b"))["rang"] >= 2
    described = msgspec.msgpack.decode((await bench.command("describe", "a")).body)
    assert "Atlantis" in described["stuck"]


# -- what others may send -----------------------------------------------------------------------------


class Picky(Struct):
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise KeyError("not even a ValueError")


async def test_a_message_whose_type_refuses_it_is_a_dead_letter_and_not_the_end(bench: Bench) -> None:
    class Checked(Job):
        seen: list[int] = []

        def on_message(self, ctx: Context, message: Picky) -> None:
            self.seen.append(message.n)

    opened = await bench.open(JobType("checked", Checked))
    await bench.define("a", "checked")
    await bench.publish("a", {"n": 1}, {"n": -1}, {"m": 1}, {"n": 2})
    await bench.send(bench.message("a", {"n": 3}), msgspec.structs.replace(bench.message("a"), body=Raw(b"\xa1\xff")))
    await rest(2)
    assert (await bench.state_of("a"))["seen"] == [1, 2, 3]
    assert {letter.reason for letter in opened.state.dead.values()} == {"WrongType"}
    assert len(opened.state.dead) == 3


@pytest.mark.parametrize("op", [*COMMANDS, "nonsense"])
async def test_a_command_that_makes_no_sense_is_answered_and_not_the_end(bench: Bench, op: str) -> None:
    opened = await bench.open(COUNTER)
    await bench.define("a", "counter")
    strange: list[dict[str, Any]] = [
        {},
        {"revision": None, "limit": "many", "letters": [[1]], "after": [], "skip": {}},
        {"revision": "x", "limit": -3, "letters": 7, "after": None},
    ]
    for arguments in strange:
        await bench.command(op, "a", **arguments)
    for body in (b"\xc1", b"\xa1\xff", b"\x93\x01"):
        await bench.send(msgspec.structs.replace(bench.message("a", kind=Kind.COMMAND), body=Raw(body)))
    await rest(1)
    assert not opened.ended.is_set()
    assert (await bench.state_of("a"))["seen"] == []


async def test_a_slot_that_can_not_be_decoded_is_kept_as_a_dead_letter_and_passed(bench: Bench) -> None:
    opened = await bench.open(COUNTER)
    await bench.define("a", "counter")
    await bench.publish("a", 1)
    for n, stored in enumerate((b"", b"\x07\x00rubbish", encode(Batch([]))[:3]), start=1):
        await bench.grid().set(Map.INBOX, P, slot_key(CLIENT, 1, n), stored)
    bench._sent = 4
    await bench.publish("a", 2)
    await rest(2)
    assert (await bench.state_of("a"))["seen"] == [1, 2]
    assert sorted(
        bytes(msgspec.msgpack.decode(letter.envelope.body)) for letter in opened.state.dead.values()
    ) == sorted([b"", b"\x07\x00rubbish", encode(Batch([]))[:3]])


async def test_what_an_earlier_generation_remembered_means_nothing_to_the_next(bench: Bench) -> None:
    await bench.open(COUNTER)
    await bench.define("a", "counter")
    await bench.publish("a", 1, id="order-17")
    await bench.publish("a", 1, id="order-17")
    await rest(1)
    assert (await bench.state_of("a"))["seen"] == [1]
    await bench.define("a", "counter", revision=2, wanted="removed")
    await rest(1)
    await bench.define("a", "counter", revision=3, generation=2)
    await bench.publish("a", 5, id="order-17")
    await rest(1)
    assert (await bench.state_of("a"))["seen"] == [5]


async def test_remembered_ids_are_dropped_when_their_time_is_over(bench: Bench) -> None:
    opened = await bench.open(JobType("counter", Counter, remember_s=5), sweep_s=0.5)
    await bench.define("a", "counter")
    await bench.publish("a", 1, id="order-17")
    await rest(1)
    assert opened.state.remembered
    await rest(3600)
    assert not opened.state.remembered


# -- the end ------------------------------------------------------------------------------------------


async def test_an_idle_owner_finds_out_that_it_is_none(bench: Bench) -> None:
    first = await bench.open(COUNTER)
    await rest(3)
    await bench.open(COUNTER)
    with trio.fail_after(2 * NodeSettings().sweep_s):
        await first.ended.wait()
    assert first.over


async def test_a_zombie_commits_nothing_and_says_nothing(bench: Bench) -> None:
    first = await bench.open(COUNTER)
    await bench.define("a", "counter")
    await bench.publish("a", 1)
    await rest(1)
    second = await bench.open(COUNTER)
    before = first.state.next_slot
    first.tenure.offer_slot(slot_key(CLIENT, 1, 1), encode(Batch([bench.message("a", 2, reply=99)])))
    await rest(5)
    assert first.over
    assert first.state.next_slot == before
    assert second.state.cursors[CLIENT] == (1, 1)
    with pytest.raises(trio.TooSlowError):
        await bench.answer(99, patience_s=1)

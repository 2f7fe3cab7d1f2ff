"""No record is larger than members can store in time, whatever comes in or goes out; and nothing is lost or doubled
where what was one record is several."""

from collections import Counter as Count
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import trio

from tenure.scheduler.context import Context
from tenure.scheduler.errors import Mistake, UnreadableFormat
from tenure.scheduler.formats import FIRST, MARK, format_of
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.scheduler.jobtype import Job, JobType, Retry
from tenure.scheduler.keys import journal_key, slot_key
from tenure.scheduler.looking_over import LookOver
from tenure.scheduler.settings import ClientSettings, NodeSettings
from tenure.scheduler.state import PartitionState
from tenure.scheduler.tenure import Tenure
from tenure.scheduler.wire import Batch, Kind, Record, decode, encode
from tests.pure.core.bench import Bench, Opened, P, rest

MIB = 2**20
RECORD_MAX = 8 * MIB


class Keeper(Job):
    blob: bytes = b""
    seen: list[int] = []

    def on_message(self, ctx: Context, message: Any) -> int:
        if isinstance(message, int) and message >= MIB:
            self.blob = b"x" * message
        else:
            self.seen.append(message[0] if isinstance(message, list) else message)
        return len(self.seen)


class Subscriber(Keeper):
    pass


class Sender(Job):
    sent: int = 0

    def on_message(self, ctx: Context, message: int) -> None:
        self.sent += 1
        ctx.send("sink", [self.sent, b"x" * message])


class Many(Job):
    def on_message(self, ctx: Context, message: int) -> None:
        for _ in range(message):
            ctx.send("sink", [1, b"x" * (MIB // 2)])


class Teller(Job):
    told: int = 0

    def on_message(self, ctx: Context, message: int) -> bytes:
        self.told += 1
        return b"x" * message


class Alarmed(Keeper):
    def on_start(self, ctx: Context) -> None:
        ctx.wake_at(datetime(2023, 11, 14, 22, 14, 20, tzinfo=UTC))  # a minute after the bench begins

    def on_timeout(self, ctx: Context) -> None:
        self.seen.append(1)


class Slow(Keeper):
    async def on_message(self, ctx: Context, message: Any) -> int:
        await trio.sleep(1)
        return super().on_message(ctx, message)


CALLS: Count[str] = Count()


class Stepping(Job):
    tries: int = 0

    async def on_message(self, ctx: Context, message: list[int]) -> None:
        count, size = message
        for n in range(count):

            def step(n: int = n) -> str:
                CALLS[str(n)] += 1
                return "x" * size

            await ctx.once(f"{trio.current_time()}.{n}" if n % 2 else str(n), step)  # half of them anew in each try


class Picky(Job):
    blob: bytes = b""

    async def on_message(self, ctx: Context, message: int) -> None:
        await trio.sleep(1)
        if message:
            self.blob = b"x" * message


class Resumer(Keeper):
    async def on_message(self, ctx: Context, message: Any) -> int:
        await trio.sleep(0.1)
        return super().on_message(ctx, message)

    async def on_resume(self, ctx: Context) -> None:
        pass


class Impatient(Job):
    n: int = 0

    async def on_message(self, ctx: Context, message: Any) -> None:
        with trio.move_on_after(0):
            await ctx.once("quote", lambda: "x" * 1000)
        self.n += 1


class Fragile(Job):
    n: int = 0

    async def on_message(self, ctx: Context, message: Any) -> None:
        await trio.sleep(1)
        if message == "boom":
            raise RuntimeError("boom")
        self.n += 1


class Resumed(Keeper):
    resumed: int = 0

    async def on_message(self, ctx: Context, message: Any) -> int:
        await trio.sleep(0.1)
        return super().on_message(ctx, message)

    async def on_resume(self, ctx: Context) -> None:
        self.resumed += 1


class Stuck(Keeper):
    async def on_stop(self, ctx: Context) -> None:
        await trio.sleep(10)


class Sleeper(Job):
    async def on_message(self, ctx: Context, message: Any) -> None:
        await trio.sleep(10_000)


ONCE = Retry(attempts_max=1)
SLEEPER = JobType("sleeper", Sleeper)
STEPPING = JobType("stepping", Stepping, retry=Retry(attempts_max=3))
RESUMED, STUCK, FRAGILE = JobType("resumed", Resumed), JobType("stuck", Stuck), JobType("fragile", Fragile, retry=ONCE)
KEEPER, SINK = JobType("keeper", Keeper, retry=ONCE), JobType("sink", Keeper)
SUBSCRIBER = JobType("subscriber", Subscriber, topics=("news",))
SENDER = JobType("sender", Sender)
MANY, TELLER = JobType("many", Many, retry=ONCE), JobType("teller", Teller, retry=ONCE)
RESUMER = JobType("resumer", Resumer)
PICKY = JobType("picky", Picky)
ALARMED, SLOW, IMPATIENT = JobType("alarmed", Alarmed), JobType("slow", Slow), JobType("impatient", Impatient)


async def make(bench: Bench, type: str, count: int) -> list[str]:
    ids = [f"{type}-{n:03}" for n in range(count)]
    for id in ids:
        await bench.define(id, type)
    await rest(2)
    return ids


async def large(bench: Bench, ids: list[str], size: int = MIB) -> None:
    """Give each of these jobs a state of that size."""
    for id in ids:
        assert (await bench.ask(id, size)).ok


async def seen_by(bench: Bench, ids: list[str]) -> list[list[int]]:
    return [(await bench.state_of(id))["seen"] for id in ids]


# -- messages that are for many -----------------------------------------------------------------------


async def test_a_message_to_many_subscribers_goes_out_in_several_records(bench: Bench, sizes: list[int]) -> None:
    await bench.open(SUBSCRIBER)
    ids = await make(bench, "subscriber", 200)
    await rest(5)
    for n in range(3):
        await bench.publish("news", [n, b"x" * 100_000], kind=Kind.TOPIC)
    await rest(10)
    assert await seen_by(bench, ids) == [[0, 1, 2]] * 200
    assert max(sizes) <= RECORD_MAX


async def test_whoever_publishes_to_many_is_answered_when_all_is_sent(bench: Bench) -> None:
    opened = await bench.open(SUBSCRIBER)
    ids = await make(bench, "subscriber", 200)
    await rest(5)
    assert (await bench.ask("news", [1, b"x" * 100_000], kind=Kind.TOPIC)).ok
    assert not opened.state.begun
    sent = len(opened.tenure.state.numbered) and sum(opened.tenure.state.numbered.values())
    assert sent * MIB >= 200 * 100_000
    await rest(10)
    assert await seen_by(bench, ids) == [[1]] * 200


@pytest.mark.parametrize("after_s", [0.002, 0.004, 0.008, 0.016, 0.03, 0.06])
@pytest.mark.parametrize("graceful", [False, True])
async def test_a_new_owner_goes_on_where_the_last_one_was(bench: Bench, after_s: float, graceful: bool) -> None:
    first = await bench.open(SUBSCRIBER, KEEPER)
    ids = await make(bench, "subscriber", 60)
    others = await make(bench, "keeper", 60)
    await rest(5)
    slowly(bench)
    await bench.send(
        bench.message("news", [1, b"x" * 300_000], kind=Kind.TOPIC),
        bench.message("keeper", [2, b"x" * 300_000], kind=Kind.TYPE),
        *(bench.message(id, 3) for id in others),
    )
    await trio.sleep(after_s)
    await (first.close() if graceful else first.kill())
    await bench.open(SUBSCRIBER, KEEPER)
    await rest(20)
    assert await seen_by(bench, ids) == [[1]] * 60
    assert await seen_by(bench, others) == [[2, 3]] * 60


def slowly(bench: Bench) -> None:
    """Calls take a while from now on, so that owners end in between."""
    bench.faults.instant_share, bench.faults.latency_s = 0.0, (0.001, 0.003)


async def test_an_owner_ends_in_the_midst_of_a_message_to_many(bench: Bench) -> None:
    """That the test before this one means something: the log says that a slot was begun, and the image does."""
    first = await bench.open(SUBSCRIBER)
    ids = await make(bench, "subscriber", 60)
    await rest(5)
    bench.faults.once(Fault.DROPPED_UNKNOWN, map=Map.INBOX, connection=first.tenure.host.grid, times=10_000)
    first.tenure.settings = msgspec.structs.replace(first.tenure.settings, outbox_bytes_max=5 * MIB)
    await bench.publish("news", [1, b"x" * 300_000], kind=Kind.TOPIC)
    await rest(2)
    (begun,) = first.state.begun.values()
    assert 0 < begun[4] < 60  # it waits for room in the outbox, which does not grow
    assert first.tenure.courier.unsent_bytes < 10 * MIB
    await first.tenure.images.write()
    await first.kill()
    bench.faults.end()
    second = await bench.open(SUBSCRIBER)
    assert second.crashed
    await rest(20)
    assert await seen_by(bench, ids) == [[1]] * 60
    assert not second.state.begun


async def test_a_record_of_a_slot_that_is_half_dealt_with_is_refused_by_versions_that_would_begin_again(
    bench: Bench,
) -> None:
    opened = await bench.open(SUBSCRIBER, image_journal_bytes_min=2**30)
    await make(bench, "subscriber", 60)
    await rest(5)
    before = opened.state.next_slot
    await bench.publish("news", [1, b"x" * 300_000], kind=Kind.TOPIC)
    await rest(5)
    found = [await bench.grid().get(Map.JOURNAL, P, journal_key(n)) for n in range(before, opened.state.next_slot)]
    marked = [stored for stored in found if stored is not None and stored[0] != FIRST]
    assert marked
    assert {stored[0] for stored in marked} == {FIRST | MARK}
    assert all(decode(stored, Record).begun for stored in marked)
    with pytest.raises(UnreadableFormat, match="start nodes of a newer one"):
        format_of(FIRST | MARK)  # as they look it up


async def test_who_comes_and_goes_meanwhile_gets_it_or_not_and_nobody_twice(bench: Bench) -> None:
    opened = await bench.open(SUBSCRIBER, KEEPER)
    ids = await make(bench, "subscriber", 60)
    await rest(5)
    slowly(bench)
    await bench.publish("news", [1, b"x" * 300_000], kind=Kind.TOPIC)
    for n in range(0, 60, 3):
        envelope = bench.message("news", n % 2 == 0, kind=Kind.SUBSCRIBE, source=ids[n])
        opened.tenure.taking.deliver(envelope)
        opened.tenure.want_commit()
        await trio.sleep(0.002)
    await rest(20)
    seen = await seen_by(bench, ids)
    assert all(count <= 1 for each in seen for count in Count(each).values())
    assert all(each == [1] for n, each in enumerate(seen) if n % 3)


async def test_the_cut_of_a_snapshot_waits_for_slots_that_are_half_dealt_with(bench: Bench) -> None:
    opened = await bench.open(SUBSCRIBER, image_journal_bytes_min=2**30)
    await make(bench, "subscriber", 60)
    await rest(5)
    slowly(bench)
    for n in range(4):
        await bench.publish("news", [n, b"x" * 300_000], kind=Kind.TOPIC)
    await bench.until(lambda: bool(opened.state.begun))
    opened.tenure.cutting._want(1)
    await rest(10)
    state, cut_at = PartitionState(), 0
    for slot in range(opened.state.next_slot):
        record = await bench.record(slot)
        assert record is not None
        state.apply(record, slot)
        if record.cut:
            cut_at = slot
            assert not state.begun
    assert 0 < cut_at < opened.state.next_slot - 5  # and not for all that is to come


async def test_a_broadcast_to_many_large_jobs_is_several_records(bench: Bench, sizes: list[int]) -> None:
    await bench.open(KEEPER)
    ids = await make(bench, "keeper", 24)
    await large(bench, ids)
    assert msgspec.msgpack.decode((await bench.ask("keeper", 7, kind=Kind.TYPE)).body) == 24
    await rest(5)
    assert await seen_by(bench, ids) == [[7]] * 24
    assert max(sizes) <= RECORD_MAX


async def test_what_a_client_sends_after_a_large_broadcast_comes_after_it(bench: Bench) -> None:
    await bench.open(KEEPER)
    ids = await make(bench, "keeper", 60)
    await bench.send(
        bench.message("keeper", [1, b"x" * 500_000], kind=Kind.TYPE), *(bench.message(id, 2) for id in ids)
    )
    for id in ids:
        await bench.publish(id, 3)
    await rest(10)
    assert await seen_by(bench, ids) == [[1, 2, 3]] * 60


# -- what turns leave ---------------------------------------------------------------------------------


async def test_what_jobs_send_counts_before_it_is_committed(bench: Bench, sizes: list[int]) -> None:
    opened = await bench.open(SENDER, SINK, outbox_bytes_max=8 * MIB)
    await make(bench, "sender", 1)
    await bench.define("sink", "sink")
    await bench.publish("sender-000", *[MIB - 100] * 40)
    most = 0
    for _ in range(400):
        await trio.sleep(0.01)
        most = max(most, opened.tenure.courier.unsent_bytes)
    assert (await bench.state_of("sink"))["seen"] == list(range(1, 41))
    assert max(sizes) <= RECORD_MAX
    assert most <= 12 * MIB


async def test_a_turn_that_sends_too_much_fails_by_name_and_sends_nothing(bench: Bench, sizes: list[int]) -> None:
    await bench.open(MANY, SINK)
    await make(bench, "many", 1)
    await bench.define("sink", "sink")
    answer = await bench.ask("many-000", 20)
    assert not answer.ok
    assert b"TurnTooLarge" in bytes(answer.body)
    assert b"turn_bytes_max" in bytes(answer.body)
    assert (await bench.state_of("sink"))["seen"] == []
    assert max(sizes) <= RECORD_MAX


async def test_an_answer_that_is_too_large_fails_its_turn_by_name(bench: Bench, sizes: list[int]) -> None:
    await bench.open(TELLER)
    await make(bench, "teller", 2)
    answer = await bench.ask("teller-000", 20 * MIB)
    assert not answer.ok
    assert b"TooLarge: the answer would have" in bytes(answer.body)
    assert (await bench.state_of("teller-000"))["told"] == 0
    await bench.publish("teller-001", 20 * MIB)  # nobody asks: what it returns is nobody's
    await bench.publish("teller-001", 20 * MIB, id="x")
    await rest(2)
    assert (await bench.state_of("teller-001"))["told"] == 2
    assert max(sizes) <= RECORD_MAX


async def test_many_answers_are_several_records(bench: Bench, sizes: list[int]) -> None:
    await bench.open(TELLER)
    await make(bench, "teller", 1)
    await bench.send(*(bench.message("teller-000", MIB - 100, reply=n) for n in range(100, 124)))
    for n in range(100, 124):
        assert (await bench.answer(n)).ok
    assert max(sizes) <= RECORD_MAX


async def test_many_questions_for_large_states_are_several_records(bench: Bench, sizes: list[int]) -> None:
    await bench.open(KEEPER)
    ids = await make(bench, "keeper", 4)
    await large(bench, ids, 2 * MIB)
    await bench.send(*(bench.message(ids[n % 4], kind=Kind.STATE, reply=n) for n in range(100, 112)))
    for n in range(100, 112):
        assert (await bench.answer(n)).ok
    assert max(sizes) <= RECORD_MAX


async def test_what_is_remembered_of_a_publish_is_its_id_and_no_answer(bench: Bench) -> None:
    opened = await bench.open(TELLER)
    await make(bench, "teller", 1)
    await bench.publish("teller-000", 1000, id="published")
    assert (await bench.ask("teller-000", 10)).ok
    await bench.send(bench.message("teller-000", 10, id="asked", reply=50))
    asked = await bench.answer(50)
    await rest(1)
    kept = opened.state.remembered["teller-000"]
    assert kept["published"][1] is None
    assert kept["asked"][1] is not None
    await bench.send(bench.message("teller-000", 99, id="asked", reply=51))
    assert (await bench.answer(51)).body == asked.body
    assert (await bench.state_of("teller-000"))["told"] == 3


async def test_timers_of_many_large_jobs_ring_over_several_records(bench: Bench, sizes: list[int]) -> None:
    await bench.open(ALARMED)
    ids = await make(bench, "alarmed", 16)
    await large(bench, ids)
    assert trio.current_time() < 55
    await rest(60)
    assert await seen_by(bench, ids) == [[1]] * 16
    assert max(sizes) <= RECORD_MAX


async def test_timers_ring_also_where_messages_fill_every_record(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    small = dict.fromkeys(("turn_bytes_max", "state_bytes_max", "answer_bytes_max"), MIB // 4)
    first = await bench.open(ALARMED, SINK)
    ids = await make(bench, "alarmed", 100)
    await make(bench, "sink", 1)
    await first.close()
    for _ in range(60):
        await bench.publish("sink-000", *[[n, b"x" * 1000] for n in range(60)])
    await rest(60)
    waiting_when_rung: list[int] = []
    commit = Tenure.commit

    async def watch(self: Tenure, *args: Any) -> None:
        await commit(self, *args)
        if all(self.state.jobs[id].timer is None and self.state.jobs[id].turns > 1 for id in ids):
            waiting_when_rung.append(sum(map(len, self.inlanes.waiting.values())))

    monkeypatch.setattr(Tenure, "commit", watch)
    await bench.open(ALARMED, SINK, record_bytes_max=MIB // 2, message_bytes_max=MIB // 8, **small)
    await rest(10)
    assert waiting_when_rung[0] > 30


@pytest.mark.parametrize(
    ("kind", "body"), [(Kind.STATE, None), (Kind.MESSAGE, "x" * (MIB // 8))], ids=["states", "no messages of its type"]
)
async def test_what_needs_no_turn_behind_an_async_one_waits_for_room_too(
    bench: Bench, sizes: list[int], kind: int, body: Any
) -> None:
    await bench.open(PICKY)
    await make(bench, "picky", 1)
    assert (await bench.ask("picky-000", 2 * MIB)).ok
    sizes.clear()
    behind = [bench.message("picky-000", body, kind=kind, reply=1000 + n) for n in range(80)]
    await bench.send(bench.message("picky-000", 0), *behind[:40])
    await bench.send(*behind[40:])
    await rest(5)
    answers = [await bench.answer(1000 + n) for n in range(80)]
    assert [answer.ok for answer in answers] == [kind == Kind.STATE] * 80
    assert max(sizes) <= RECORD_MAX


async def test_a_new_owner_goes_on_with_jobs_whose_mailboxes_fill_a_record(bench: Bench) -> None:
    first = await bench.open(RESUMER)
    (id,) = await make(bench, "resumer", 1)
    await bench.define(id, "resumer", revision=2, wanted="paused")
    await rest(2)
    for n in range(12):
        await bench.publish(id, [n, b"x" * (MIB // 2)])
    await rest(2)
    await bench.define(id, "resumer", revision=3)
    await bench.until(lambda: first.state.jobs[id].status == "running")
    await first.close()
    await bench.open(RESUMER)
    await rest(5)
    assert (await bench.state_of(id))["seen"] == list(range(12))


async def test_timers_that_are_fired_for_a_wait_ring_over_several_records(bench: Bench, sizes: list[int]) -> None:
    opened = await bench.open(ALARMED)
    ids = await make(bench, "alarmed", 16)
    await large(bench, ids)
    assert trio.current_time() < 55
    answers = [await bench.command("quiet", application="default", fire=True, wait="w") for _ in range(2)]
    await rest(2)
    assert await seen_by(bench, ids) == [[1]] * 16
    assert all(record.timer is None or not record.timer.due_ms for record in opened.state.jobs.values())
    assert [msgspec.msgpack.decode(answer.body)["timers"] for answer in answers] == [0, 0]
    assert max(sizes) <= RECORD_MAX


async def test_many_jobs_are_looked_over_in_slices_and_what_changes_meanwhile_counts(bench: Bench) -> None:
    opened = await bench.open(KEEPER, SLEEPER)
    ids = await make(bench, "keeper", 5000)
    await bench.define("busy", "sleeper")
    await rest(2)
    before = msgspec.msgpack.decode((await bench.command("quiet", application="default")).body)
    assert (before["jobs"], before["turns"], before["busy"]) == (5001, 5001, {})
    again = msgspec.msgpack.decode((await bench.command("quiet", application="default")).body)
    assert again["print"] == before["print"]
    counts: list[int] = []
    go_on = LookOver.go_on

    def slowly_counted(look: LookOver, count: int) -> None:
        counts.append(min(count, look.left()))
        go_on(look, count)
        if len(counts) == 3:  # in the midst of it, to one that is counted and one that is not
            for id in (ids[0], ids[-1]):
                opened.tenure.taking.deliver(bench.message(id, 7))
            opened.tenure.taking.deliver(bench.message("busy", 7))
            opened.tenure.wake()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LookOver, "go_on", slowly_counted)
        after = msgspec.msgpack.decode((await bench.command("quiet", application="default")).body)
    assert max(counts) <= 1000
    assert (after["jobs"], after["turns"]) == (5001, 5003)
    assert after["busy"] == {"running turns": 1}
    assert after["examples"] == [{"job": "busy", "why": "running turns"}]
    assert after["print"] != before["print"]


async def test_async_turns_that_end_at_once_wait_for_room(bench: Bench, sizes: list[int]) -> None:
    await bench.open(SLOW)
    ids = await make(bench, "slow", 16)
    await bench.send(*(bench.message(id, MIB) for id in ids))
    await rest(5)
    await bench.send(*(bench.message(id, 1) for id in ids))
    await rest(5)
    assert await seen_by(bench, ids) == [[1]] * 16
    assert max(sizes) <= RECORD_MAX


async def test_many_large_jobs_are_paused_and_resumed_over_several_records(bench: Bench, sizes: list[int]) -> None:
    opened = await bench.open(KEEPER)
    ids = await make(bench, "keeper", 16)
    await large(bench, ids)
    for revision, wanted in ((2, "paused"), (3, "running")):
        for id in ids:
            await bench.define(id, "keeper", revision=revision, wanted=wanted)
        await rest(5)
        assert {opened.state.jobs[id].status for id in ids} == {wanted}
    assert max(sizes) <= RECORD_MAX


async def test_steps_that_nobody_waited_for_go_with_their_turn(bench: Bench) -> None:
    opened = await bench.open(IMPATIENT)
    (id,) = await make(bench, "impatient", 1)
    for n in range(20):
        await bench.publish(id, n)
        await rest(0.1)
    assert (await bench.state_of(id))["n"] == 20
    await rest(1)
    assert opened.state.steps == {}


async def test_the_steps_of_a_turn_have_a_bound_over_all_its_tries(bench: Bench, sizes: list[int]) -> None:
    opened = await bench.open(STEPPING)
    await bench.define("s", "stepping")
    answer = await bench.ask("s", [3, MIB - 100])
    assert answer.ok
    CALLS.clear()
    answer = await bench.ask("s", [10, MIB - 100])
    assert not answer.ok
    assert b"TurnTooLarge: with step" in bytes(answer.body)
    assert b"turn_bytes_max" in bytes(answer.body)
    await rest(1)
    assert max(CALLS.values()) > 1  # it was tried again
    kept = sum(map(len, opened.state.steps.get("s", {}).values()))
    assert kept <= 4 * MIB
    assert max(sizes) <= RECORD_MAX


async def test_very_many_small_steps_have_the_same_bound(bench: Bench) -> None:
    await bench.open(
        STEPPING, turn_bytes_max=2**19, state_bytes_max=2**19, answer_bytes_max=2**18, message_bytes_max=2**18
    )
    await bench.define("s", "stepping")
    assert (await bench.ask("s", [1000, 1])).ok
    answer = await bench.ask("s", [20_000, 1])
    assert not answer.ok
    assert b"TurnTooLarge" in bytes(answer.body)


async def test_a_larger_state_of_an_older_version_may_stay_and_not_grow(bench: Bench) -> None:
    old = {"state_bytes_max": 6 * MIB, "turn_bytes_max": 8 * MIB, "record_bytes_max": 16 * MIB}
    first = await bench.open(KEEPER, **old)
    (id,) = await make(bench, "keeper", 1)
    await large(bench, [id], 5 * MIB)
    await first.close()
    await bench.open(KEEPER)
    assert (await bench.ask(id, 3 * MIB)).ok
    answer = await bench.ask(id, 5 * MIB)
    assert not answer.ok
    assert b"StateTooLarge" in bytes(answer.body)


# -- dead letters and pages ---------------------------------------------------------------------------


async def letters_of(bench: Bench, count: int) -> Opened:
    opened = await bench.open(KEEPER, dead_letters_bytes_max=64 * MIB)  # nobody is held back
    for _ in range(count):
        await bench.publish("nobody", b"x" * (MIB - 100))
    await rest(5)
    assert len(opened.state.dead) == count
    return opened


async def test_pages_of_dead_letters_end_after_some_bytes(bench: Bench, sizes: list[int]) -> None:
    await letters_of(bench, 20)
    after, pages, found = 0, 0, []
    while True:
        answer = await bench.command("dead_letters", after=after)
        page = msgspec.msgpack.decode(answer.body)
        found += [letter["n"] for letter in page["letters"]]
        pages += 1
        if not page["more"]:
            break
        after = found[-1]
    assert found == list(range(1, 21))
    assert pages > 10
    assert max(sizes) <= RECORD_MAX


async def test_many_large_dead_letters_are_replayed_over_several_records(bench: Bench, sizes: list[int]) -> None:
    opened = await letters_of(bench, 20)
    answer = await bench.command("exhume", letters=list(range(1, 21)), replay=True)
    assert msgspec.msgpack.decode(answer.body) == 20
    await rest(5)
    assert sorted(opened.state.dead) == list(range(21, 41))  # there is still nobody
    assert max(sizes) <= RECORD_MAX


async def test_the_messages_of_a_removed_job_become_dead_letters_over_several_records(
    bench: Bench, sizes: list[int]
) -> None:
    opened = await bench.open(KEEPER)
    await bench.define("full", "keeper", wanted="paused")
    for _ in range(20):
        await bench.publish("full", b"x" * (MIB - 100))
    await rest(5)
    await bench.define("full", "keeper", revision=2, wanted="removed")
    await rest(10)
    assert len(opened.state.dead) == 20
    assert "full" not in opened.state.jobs
    assert "full" not in opened.state.mail
    assert max(sizes) <= RECORD_MAX


# -- the midst of a large mailbox ---------------------------------------------------------------------


async def replayed(bench: Bench, opened: Opened) -> PartitionState:
    """What another owner would make of the journal."""
    state = PartitionState()
    for slot in range(opened.state.next_slot):
        record = await bench.record(slot)
        if record is not None and record.after == state.last_id:
            state.apply(record, slot)
    return state


def mailbox(state: PartitionState, id: str) -> list[tuple[int, bytes, int]]:
    return [(envelope.kind, bytes(envelope.body)[-8:], envelope.attempts) for envelope in state.mail.get(id, ())]


async def fill(bench: Bench, id: str, type: str, count: int, size: int = MIB - 100, **fields: Any) -> None:
    await bench.define(id, type, wanted="paused")
    for n in range(count):
        await bench.publish(id, [n, b"x" * size], **fields)
    await rest(5)


async def test_a_job_with_a_full_mailbox_is_resumed_elsewhere_in_records_that_are_not_large(
    bench: Bench, sizes: list[int]
) -> None:
    first = await bench.open(RESUMED, image_journal_bytes_min=2**30)
    await bench.define("r", "resumed")
    assert (await bench.ask("r", 7)).ok
    await rest()
    await bench.define("r", "resumed", revision=2, wanted="paused")
    for n in range(20):
        await bench.publish("r", [n, b"x" * (MIB - 100)])
    await rest(5)
    await bench.define("r", "resumed", revision=3)
    await bench.until(lambda: first.state.jobs["r"].status == "running")
    await first.kill()
    second = await bench.open(RESUMED, image_journal_bytes_min=2**30)
    await second.kill()
    third = await bench.open(RESUMED, image_journal_bytes_min=2**30)
    await rest(10)
    state = await bench.state_of("r")
    assert state["seen"] == [7, *range(20)]
    assert state["resumed"] >= 1
    assert mailbox(await replayed(bench, third), "r") == mailbox(third.state, "r") == []
    assert max(sizes) <= RECORD_MAX


async def test_very_many_jobs_are_resumed_elsewhere_in_records_that_are_not_large(
    bench: Bench, sizes: list[int]
) -> None:
    size = 64 * 1024
    small = dict.fromkeys(("turn_bytes_max", "state_bytes_max", "answer_bytes_max"), size // 2)
    settings = small | {"message_bytes_max": size // 4, "record_bytes_max": size}
    first = await bench.open(RESUMED, **settings)
    ids = await make(bench, "resumed", 2500)
    await bench.send(*(bench.message(id, 1) for id in ids))
    await rest(5)
    await first.kill()
    sizes.clear()
    second = await bench.open(RESUMED, **settings)
    await rest(5)
    assert [state["resumed"] for state in [await bench.state_of(id) for id in ids[:3]]] == [1] * 3
    assert sum(record.turns for record in second.state.jobs.values()) == 7500
    assert max(sizes) <= size


async def test_a_stop_goes_in_front_of_a_full_mailbox_and_what_it_holds_stays_where_it_is(
    bench: Bench, sizes: list[int]
) -> None:
    opened = await bench.open(STUCK, image_journal_bytes_min=2**30)
    await fill(bench, "full", "stuck", 12)
    before = opened.state.next_slot
    await bench.define("full", "stuck", revision=2, wanted="removed")
    await rest(0.05)
    assert next(kind for kind, _, _ in mailbox(opened.state, "full")) == Kind.STOP
    assert len(mailbox(opened.state, "full")) == 14  # its start is there, too
    assert mailbox(await replayed(bench, opened), "full") == mailbox(opened.state, "full")
    found = [await bench.grid().get(Map.JOURNAL, P, journal_key(n)) for n in range(before, opened.state.next_slot)]
    edited = [stored for stored in found if stored is not None and decode(stored, Record).edited]
    assert [stored[0] for stored in edited] == [FIRST | MARK]
    await opened.kill()
    second = await bench.open(STUCK, image_journal_bytes_min=2**30)
    await rest(20)
    assert len(second.state.dead) == 12
    assert "full" not in second.state.jobs
    assert max(sizes) <= RECORD_MAX


async def test_a_small_mailbox_is_written_as_older_versions_read_it(bench: Bench) -> None:
    opened = await bench.open(KEEPER, image_journal_bytes_min=2**30)
    await fill(bench, "few", "keeper", 3, 100)
    await bench.define("few", "keeper", revision=2, wanted="removed")
    await rest(5)
    found = [await bench.grid().get(Map.JOURNAL, P, journal_key(n)) for n in range(opened.state.next_slot)]
    assert {stored[0] for stored in found if stored is not None} == {FIRST}
    assert len(opened.state.dead) == 3


async def test_a_full_mailbox_is_purged_in_records_that_are_not_large(bench: Bench, sizes: list[int]) -> None:
    opened = await bench.open(SLOW, image_journal_bytes_min=2**30)
    await bench.define("s", "slow")
    await rest()
    for n in range(16):
        await bench.publish("s", [n, b"x" * (MIB - 100)])
    await rest(0.1)  # the first of them is running
    answer = await bench.command("purge", "s")
    assert msgspec.msgpack.decode(answer.body) == 15
    assert mailbox(await replayed(bench, opened), "s") == mailbox(opened.state, "s")
    await rest(5)
    assert (await bench.state_of("s"))["seen"] == [0]
    assert "s" not in opened.state.mail
    assert max(sizes) <= RECORD_MAX


async def test_a_purge_that_answers_very_many_goes_over_several_records(bench: Bench, sizes: list[int]) -> None:
    count = 150_000
    opened = await bench.open(SLEEPER, mailbox_messages_max=10 * count, image_journal_bytes_min=2**30)
    await bench.define("k", "sleeper")
    await rest()
    for first in range(0, count, 1000):
        await bench.send(*(bench.message("k", n, reply=n + 1) for n in range(first, first + 1000)))
        if first % 10_000 == 0:
            await rest(0.2)
    await rest(5)
    assert len(opened.state.mail["k"]) == count
    sizes.clear()
    answer = await bench.command("purge", "k")
    assert msgspec.msgpack.decode(answer.body) == count - 1  # one of them is running
    assert len(opened.state.mail["k"]) == 1
    assert sum(sizes) > RECORD_MAX
    assert max(sizes) <= RECORD_MAX


async def test_attempts_that_were_counted_ahead_are_taken_back_in_what_is_committed_too(bench: Bench) -> None:
    first = await bench.open(FRAGILE)
    await bench.define("f", "fragile")
    await rest()
    await bench.publish("f", "boom", 1, 2, 3)
    await rest(0.5)
    await first.kill()
    second = await bench.open(FRAGILE, image_journal_bytes_min=2**30)
    assert second.crashed
    await rest(3)
    assert second.state.jobs["f"].status == "failed"
    kept = mailbox(second.state, "f")
    assert [attempts for _, _, attempts in kept] == [1, 0, 0, 0]
    await second.kill()
    third = await bench.open(FRAGILE)
    assert mailbox(third.state, "f") == kept


async def test_topics_and_activities_have_pages_and_older_clients_get_what_they_know(bench: Bench) -> None:
    await bench.open(SUBSCRIBER)
    await make(bench, "subscriber", 3)
    await rest(3)
    old = msgspec.msgpack.decode((await bench.command("topics")).body)
    assert old == {"news": 3}
    new = msgspec.msgpack.decode((await bench.command("topics", after="")).body)
    assert new == {"topics": [{"topic": "news", "jobs": 3}], "more": False}
    assert msgspec.msgpack.decode((await bench.command("topics", after="news")).body) == {"topics": [], "more": False}
    assert msgspec.msgpack.decode((await bench.command("workers")).body) == []
    assert msgspec.msgpack.decode((await bench.command("workers", after="")).body) == {"workers": [], "more": False}


# -- settings -----------------------------------------------------------------------------------------


def test_settings_that_would_let_a_record_grow_are_refused_by_name() -> None:
    with pytest.raises(Mistake, match="state_bytes_max is 8388608, and may be turn_bytes_max at most"):
        NodeSettings(state_bytes_max=8 * MIB)
    with pytest.raises(Mistake, match="turn_bytes_max is 5242880, and may be a half of record_bytes_max"):
        NodeSettings(turn_bytes_max=5 * MIB)
    assert NodeSettings(state_bytes_max=8 * MIB, turn_bytes_max=9 * MIB, record_bytes_max=18 * MIB)
    with pytest.raises(Mistake, match="message_bytes_max"):
        ClientSettings(message_bytes_max=5 * MIB)


async def test_a_cut_that_waits_for_room_in_the_outbox_lets_others_go_on(bench: Bench) -> None:
    """Another partition takes nothing for long, and somebody wants a snapshot meanwhile."""
    opened = await bench.open(SUBSCRIBER, KEEPER)
    ids = await make(bench, "subscriber", 60)
    await make(bench, "keeper", 1)
    await rest(5)
    bench.faults.once(Fault.DROPPED_UNKNOWN, map=Map.INBOX, connection=opened.tenure.host.grid, times=10_000)
    opened.tenure.settings = msgspec.structs.replace(opened.tenure.settings, outbox_bytes_max=5 * MIB)
    await bench.publish("news", [1, b"x" * 300_000], kind=Kind.TOPIC)
    await rest(2)
    assert opened.state.begun
    opened.tenure.cutting._want(1)
    await rest(2)
    envelope = bench.message("keeper-000", 7)
    await bench.grid().set(Map.INBOX, P, slot_key(b"\x01client2", 1, 0), encode(Batch([envelope])))
    await rest(2)
    assert opened.state.begun
    assert opened.state.cursors.get(b"\x01client2") == (1, 1), "what is for others is taken"
    bench.faults.end()
    await rest(20)
    assert await seen_by(bench, ids) == [[1]] * 60
    assert opened.state.cut == 1

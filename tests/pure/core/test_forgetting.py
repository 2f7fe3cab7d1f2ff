"""Lanes of clients that are gone are forgotten; nothing that was acknowledged goes with them, whatever clocks say."""

from contextlib import AbstractAsyncContextManager

import msgspec
import pytest
import trio

from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import MARKER, Cluster
from tenure.scheduler.context import Context
from tenure.scheduler.errors import Backlogged
from tenure.scheduler.forgetting import Forgetting
from tenure.scheduler.grid.memory import Fault, FaultyGrid
from tenure.scheduler.grid.port import Map
from tenure.scheduler.inlanes import PROOF
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.keys import WATERMARK, slot_key
from tenure.scheduler.settings import ClientSettings
from tenure.scheduler.watermark import announce, announced
from tenure.scheduler.wire import Batch, decode, encode
from tests.pure.core.bench import CLIENT, FORMATION, Bench, Opened, P, rest

LIFETIME_S = 10.0
SILENCE_S = 2 * LIFETIME_S + 5
HOUR_MS = 3_600_000


class Counter(Job):
    seen: list[int] = []

    def on_message(self, ctx: Context, message: int) -> None:
        self.seen.append(message)


COUNTER = JobType("counter", Counter)


async def opened_for_a_while(bench: Bench) -> Opened:
    opened = await bench.open(COUNTER, lane_lifetime_s=LIFETIME_S, sweep_s=0.5)
    await bench.grid().put_if_absent(Map.NODES, 0, MARKER, encode(Cluster(FORMATION, 1, 1, True)))
    await bench.define("a", "counter")
    return opened


def client(bench: Bench, sender: bytes, *, behind_ms: int = 0) -> AbstractAsyncContextManager[GridClient]:
    return open_client(
        bench.grid(),
        settings=ClientSettings(lane_lifetime_s=LIFETIME_S),
        registry=Registry(COUNTER),
        now_ms=lambda: bench.now_ms() - behind_ms,
        sender=sender,
    )


async def publish_once(bench: Bench, message: int, sender: bytes = b"\x01gone123") -> None:
    async with client(bench, sender) as gone:
        await gone.publish("a", message)


async def seen_by_all(bench: Bench) -> list[int]:
    above = await announced(bench.grid(), P) or 0
    bench.lane = max(bench.lane, bench.now_ms(), above) + 1  # our own lane may have been forgotten, too
    bench._sent = 0
    return (await bench.state_of("a"))["seen"]  # type: ignore[no-any-return]


async def test_a_silent_lane_is_forgotten_and_its_late_slots_are_dead(bench: Bench) -> None:
    opened = await opened_for_a_while(bench)
    await publish_once(bench, 1)
    await rest(LIFETIME_S + 2)
    (lane, n) = opened.state.cursors[b"\x01gone123"]
    assert (n, opened.state.watermark) == (1, 0)
    await rest(LIFETIME_S + 2)
    assert (opened.state.cursors, opened.state.watermark) == ({}, lane)
    for late in (0, 1):
        key = slot_key(b"\x01gone123", lane, late)
        await bench.grid().set(Map.INBOX, P, key, encode(Batch([bench.message("a", 7)])))
    await rest(5)
    assert await bench.keys(Map.INBOX) == []
    assert await seen_by_all(bench) == [1]


async def test_a_lane_whose_next_slot_was_stored_is_not_forgotten(bench: Bench) -> None:
    opened = await opened_for_a_while(bench)
    await publish_once(bench, 1)
    await rest(1)
    lane, n = opened.state.cursors[b"\x01gone123"]
    # Nobody hears of the slot: no event, and no scan shows it.
    opened.tenure.offer_slot = lambda key, value: True  # type: ignore[method-assign]
    await bench.grid().set(Map.INBOX, P, slot_key(b"\x01gone123", lane, n), encode(Batch([bench.message("a", 2)])))
    await rest(SILENCE_S)
    assert opened.state.cursors == {b"\x01gone123": (lane, n)}
    del opened.tenure.offer_slot
    await rest(5)
    assert await seen_by_all(bench) == [1, 2]


async def test_a_client_whose_clock_is_behind_and_whose_read_fails_loses_nothing(bench: Bench) -> None:
    opened = await opened_for_a_while(bench)
    await publish_once(bench, 1)
    await rest(SILENCE_S)
    assert opened.state.watermark
    bench.faults.once(Fault.ABSENT, map=Map.HEADS, times=3)
    bench.faults.once(Fault.STALE_TAKEN, map=Map.HEADS)
    async with client(bench, b"\x01behind1", behind_ms=HOUR_MS) as behind:
        await behind.publish("a", 2)
    await rest(5)
    assert await seen_by_all(bench) == [1, 2]


async def test_what_a_client_leaves_whose_clock_is_a_year_ahead_is_forgotten_and_the_others_go_on(bench: Bench) -> None:
    """The watermark is a year ahead then: above the young lanes of all others, known here or not yet."""
    opened = await opened_for_a_while(bench)
    ahead = b"\x01yahead1"
    async with client(bench, b"\x01living1") as known, client(bench, b"\x01young12") as young:
        async with client(bench, ahead, behind_ms=-365 * 24 * HOUR_MS) as year_ahead:
            await year_ahead.publish("a", 0)
        said = [0]
        for n in range(1, 61):
            await rest(1)
            await known.publish("a", n)
            said.append(n)
            if n == 14:  # begun before the watermark is announced, and stored after that
                assert (await announced(bench.grid(), P) or 0) > bench.now_ms()
                await put(bench, b"\x01between", bench.now_ms() - 5000, 0, 1000)
                said.append(1000)
            if n % 7 == 0:
                await young.publish("a", 100 + n)
                said.append(100 + n)
        assert ahead not in opened.state.cursors
        assert opened.state.watermark > bench.now_ms() + 364 * 24 * HOUR_MS
        await rest(1)
        assert await seen_by_all(bench) == said
        await opened.kill()
        again = await bench.open(COUNTER, lane_lifetime_s=LIFETIME_S, sweep_s=0.5)
        await known.publish("a", 61)
        await young.publish("a", 200)
        await rest(1)
        assert await seen_by_all(bench) == [*said, 61, 200]
    await rest(5 * LIFETIME_S)
    assert set(again.state.cursors) <= {CLIENT}, "they are forgotten, too"


async def test_nothing_is_forgotten_while_a_lane_that_it_would_kill_waits_to_be_taken(bench: Bench) -> None:
    opened = await bench.open(COUNTER, lane_lifetime_s=LIFETIME_S, sweep_s=0.5, mailbox_messages_max=2)
    await bench.define("a", "counter", wanted="paused")
    await publish_once(bench, 1)
    await publish_once(bench, 2, b"\x01alsogon")
    await rest(1)
    # Of an older version, which can't hold back by itself what is for this job.
    key = slot_key(b"\x01behind1", bench.now_ms() - HOUR_MS, 0)
    await bench.grid().set(Map.INBOX, P, key, encode(Batch([bench.message("a", 3)])))
    await rest(SILENCE_S)
    assert b"\x01behind1" in opened.tenure.inlanes.waiting, "its job's mailbox is full"
    assert opened.state.watermark == 0
    await bench.define("a", "counter", revision=2)
    await rest(SILENCE_S)
    assert opened.state.watermark
    assert await seen_by_all(bench) == [1, 2, 3]


async def test_what_began_before_the_watermark_was_announced_is_heard_before_it_counts(bench: Bench) -> None:
    """No event and no sweep: what finds it is the look that forgetting takes by itself."""
    await bench.form()
    await publish_once(bench, 1)
    opened = await bench.open(COUNTER, hints=False, lane_lifetime_s=LIFETIME_S, sweep_s=1e6)
    await bench.define("a", "counter")
    await rest(LIFETIME_S + 1)
    async with client(bench, b"\x01behind1", behind_ms=HOUR_MS) as behind:
        await behind.publish("a", 2)
    assert await announced(bench.grid(), P) == 0
    await opened.tenure.forgetting.sweep()
    assert await announced(bench.grid(), P) == opened.state.cursors[b"\x01gone123"][0]
    await rest(LIFETIME_S - 1)
    await opened.tenure.forgetting.sweep()
    assert b"\x01gone123" in opened.state.cursors, "it has no patience"
    assert b"\x01behind1" not in opened.state.cursors
    await rest(2)
    await opened.tenure.forgetting.sweep()
    await rest(1)
    assert opened.state.watermark == 0
    assert opened.state.cursors[b"\x01behind1"][1] == 1
    await opened.tenure.forgetting.sweep()
    await rest(1)
    assert b"\x01gone123" not in opened.state.cursors
    assert opened.state.watermark


async def test_a_lane_whose_forgetting_came_to_nothing_goes_on(bench: Bench) -> None:
    opened = await opened_for_a_while(bench)
    await bench.publish("a", 1)
    await rest(1)
    lane, n = opened.state.cursors[CLIENT]
    await bench.grid().put_if_absent(Map.INBOX, P, slot_key(CLIENT, lane, n), PROOF)
    await rest(2)
    await bench.publish("a", 2, 3)
    await rest(2)
    assert (await bench.state_of("a"))["seen"] == [1, 2, 3]
    assert await bench.keys(Map.INBOX) == []


async def test_the_watermark_only_grows(bench: Bench) -> None:
    grid = bench.grid()
    assert await announced(grid, P) == 0
    assert await announce(grid, P, 7) == 7
    assert await announce(grid, P, 5) == 7
    assert await announced(grid, P) == 7
    bench.faults.once(Fault.STALE_TAKEN, map=Map.HEADS)
    assert await announce(grid, P, 9) in (9, None)
    stored = await grid.get(Map.HEADS, P, WATERMARK)
    assert stored is not None
    assert decode(stored, int) in (7, 9)
    assert await announce(grid, P, 9) == 9


async def test_nobody_is_told_a_watermark_that_is_out_of_date(bench: Bench) -> None:
    """Who begins a lane above it would begin one that is dead."""
    grid = bench.grid()
    await announce(grid, P, 7)
    await rest(2)
    await announce(grid, P, 9)
    bench.faults.once(Fault.STALE_TAKEN, map=Map.HEADS)
    assert await announced(grid, P) is None
    assert await announced(grid, P) == 9


async def test_a_proof_that_was_there_a_moment_ago_proves_nothing(bench: Bench) -> None:
    """An earlier owner put it there, a client has written its message over it since, and nobody has heard of that."""
    opened = await opened_for_a_while(bench)
    await publish_once(bench, 1)
    await rest(1)
    lane, n = opened.state.cursors[b"\x01gone123"]
    key = slot_key(b"\x01gone123", lane, n)
    opened.tenure.offer_slot = lambda key, value: True  # type: ignore[method-assign]
    prove, proofs = opened.tenure.forgetting._prove_empty, 0

    async def prove_late(key: bytes) -> bool:
        nonlocal proofs
        proofs += 1
        await bench.grid().set(Map.INBOX, P, key, PROOF)
        await rest(2)
        await bench.grid().set(Map.INBOX, P, key, encode(Batch([bench.message("a", 2)])))
        bench.faults.once(Fault.STALE_TAKEN, map=Map.INBOX)
        return await prove(key)

    opened.tenure.forgetting._prove_empty = prove_late  # type: ignore[method-assign]
    await bench.until(lambda: proofs > 0)
    await rest(3)
    opened.tenure.forgetting._prove_empty = prove  # type: ignore[method-assign]
    assert await bench.grid().get(Map.INBOX, P, key) is not None
    assert opened.state.cursors == {b"\x01gone123": (lane, n)}
    del opened.tenure.offer_slot
    await rest(5)
    assert await seen_by_all(bench) == [1, 2]


WAITING = b"\x01waiting"


async def two_silent_lanes(bench: Bench, **settings: float) -> tuple[Opened, int]:
    """One of a client whose next lane waits, as its job is full: when that is put there; and a later one."""
    await bench.form()
    await bench.define("a", "counter", wanted="paused")
    await bench.define("b", "counter")
    begun = bench.now_ms()
    await put(bench, WAITING, begun, 0, 1)
    await put(bench, WAITING, begun, 1, 2)
    await bench.grid().set(Map.INBOX, P, slot_key(b"\x01gone123", begun + 2, 0), encode(Batch([bench.message("b", 4)])))
    return await bench.open(COUNTER, lane_lifetime_s=LIFETIME_S, mailbox_messages_max=2, **settings), begun


async def test_nobody_is_forgotten_whose_next_lane_is_found_as_others_are(bench: Bench) -> None:
    """The watermark of the later one would kill that lane."""
    opened, begun = await two_silent_lanes(bench, hints=False, sweep_s=1e6)
    await rest(LIFETIME_S + 1)
    await opened.tenure.forgetting.sweep()
    # Of an older version, which can't hold back by itself what is for this job.
    await put(bench, WAITING, begun + 1, 0, 3, after=(begun, 2))
    await rest(LIFETIME_S + 1)
    await opened.tenure.forgetting.sweep()
    await rest(1)
    assert opened.state.watermark == begun + 2
    assert opened.state.cursors == {WAITING: (begun, 2)}
    await bench.define("a", "counter", revision=2)
    opened.tenure.definitions.sweep_soon()
    await rest(1)
    assert seen_by(opened) == [1, 2, 3]


def seen_by(opened: Opened) -> list[int]:
    """What job a has seen, as its record says."""
    seen: list[int] = msgspec.msgpack.decode(opened.state.jobs["a"].state)["seen"]
    return seen


async def test_a_lane_that_waits_does_not_keep_others_from_being_forgotten(bench: Bench) -> None:
    opened, begun = await two_silent_lanes(bench, sweep_s=0.5)
    await put(bench, WAITING, begun + 1, 0, 3, after=(begun, 2))
    await rest(SILENCE_S)
    assert opened.state.watermark == begun + 2
    assert opened.state.cursors == {WAITING: (begun, 2)}
    async with client(bench, b"\x01later12") as later:
        await later.publish("b", 5)
    await rest(SILENCE_S)
    assert opened.state.cursors == {WAITING: (begun, 2)}
    await bench.define("a", "counter", revision=2)
    await rest(SILENCE_S)
    assert await seen_by_all(bench) == [1, 2, 3]


async def test_what_a_client_hears_of_much_too_late_is_not_published_again(bench: Bench) -> None:
    await opened_for_a_while(bench)
    grid = bench.grid()

    async def stopped() -> None:
        grid.before_return = None
        grid.freeze()
        bench.nursery.start_soon(thaw_later, grid)

    async with open_client(
        grid, settings=ClientSettings(lane_lifetime_s=LIFETIME_S), registry=Registry(COUNTER), now_ms=bench.now_ms
    ) as late:
        await late.publish("a", 1)
        grid.before_return = stopped
        with pytest.raises(Backlogged):
            await late.publish("a", 2)
        await late.publish("a", 3)
    await rest(5)
    assert await seen_by_all(bench) == [1, 2, 3]


async def thaw_later(grid: FaultyGrid) -> None:
    await trio.sleep(LIFETIME_S)
    grid.thaw()


@pytest.mark.parametrize(("slept_ms", "goes_on"), [(500, True), (HOUR_MS, False), (-HOUR_MS, True)])
async def test_a_machine_that_has_slept_begins_a_new_lane(bench: Bench, slept_ms: int, goes_on: bool) -> None:
    """While it slept its lane may have been forgotten, and its own clock has seen nothing of it."""
    opened = await opened_for_a_while(bench)
    async with client(bench, b"\x01sleeper") as sleeper:
        await sleeper.publish("a", 1)
        await rest(1)
        (lane, _) = opened.state.cursors[b"\x01sleeper"]
        bench.skew_ms += slept_ms
        await sleeper.publish("a", 2)
        await rest(1)
    assert (opened.state.cursors[b"\x01sleeper"] == (lane, 2)) is goes_on
    assert (await bench.state_of("a"))["seen"] == [1, 2]


@pytest.mark.parametrize("is_discarded", [True, False])
async def test_a_lane_that_begins_in_the_moment_in_which_the_one_before_is_forgotten_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_discarded: bool
) -> None:
    """Both are in one record, and then the partition gets another owner."""
    sender = b"\x01clientA"
    first = await opened_for_a_while(bench)
    begun = bench.now_ms()
    await put(bench, sender, begun, 0, 1)
    await rest(1)
    if not is_discarded:
        bench.faults.set_rates({Fault.DISCARD_LOST: 1.0})
    next_lane, forget = begun + 25_000, Forgetting._forget
    key, value = slot_key(sender, next_lane, 0), encode(Batch([bench.message("a", 2)], begun, 1))
    moment = trio.Event()

    def forgotten(self: Forgetting, silent: bytes, cursor: tuple[int, int]) -> None:
        forget(self, silent, cursor)
        if silent == sender and not moment.is_set():
            moment.set()
            for copy in bench.cluster.sides[0].copies[P]:
                copy.entries[Map.INBOX][key] = value
            first.tenure.hear_slot(key, value)

    monkeypatch.setattr(Forgetting, "_forget", forgotten)
    with trio.fail_after(60):
        await moment.wait()
    await rest(2)
    monkeypatch.undo()
    assert first.state.cursors[sender] == (next_lane, 1)
    await rest(3)
    bench.faults.set_rates({})
    await first.kill()
    await bench.open(COUNTER, lane_lifetime_s=LIFETIME_S, sweep_s=0.5)
    await put(bench, sender, next_lane, 1, 3)
    await put(bench, sender, next_lane + 60_000, 0, 4, after=(next_lane, 2))
    await rest(15)
    assert await seen_by_all(bench) == [1, 2, 3, 4]
    await rest(1)
    assert await bench.keys(Map.INBOX) == []


async def put(bench: Bench, sender: bytes, lane: int, n: int, message: int, after: tuple[int, int] = (0, 0)) -> None:
    batch = Batch([bench.message("a", message)], *after)
    await bench.grid().set(Map.INBOX, P, slot_key(sender, lane, n), encode(batch))

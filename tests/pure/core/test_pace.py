"""A node's loop comes round while there is much to do: with handlers that take time on a clock of the test's own."""

from collections.abc import Callable

import pytest
import trio

from tenure.scheduler import alarms, running, tenure
from tenure.scheduler.context import Context
from tenure.scheduler.grid.port import Map
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Job, JobType, Retry
from tenure.scheduler.journal import Journal
from tenure.scheduler.keys import journal_key, slot_key
from tenure.scheduler.pace import SLICE_S, Pace
from tenure.scheduler.tenure import Tenure
from tenure.scheduler.wire import Batch, encode
from tests.pure.core.bench import CLIENT, Bench, Opened, P, rest


class Clock:
    """Stands still, but for what handlers take."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


CLOCK = Clock()


class Worker(Job):
    n: int = 0

    def on_message(self, ctx: Context, message: float) -> int:
        CLOCK.now_s += message
        self.n += 1
        return self.n


WORKER = JobType("worker", Worker)


@pytest.fixture(autouse=True)
def clock() -> Clock:
    CLOCK.now_s = 0.0
    return CLOCK


class Watch:
    """How long the loop stood still at most, by the clock of the test."""

    def __init__(self) -> None:
        self.stalls: list[float] = []

    async def run(self) -> None:
        while True:
            began_s = CLOCK.now_s
            await trio.lowlevel.checkpoint()
            self.stalls.append(CLOCK.now_s - began_s)
            if CLOCK.now_s == began_s:
                await trio.sleep(0.001)


async def work(bench: Bench) -> Opened:
    opened = await bench.open(WORKER)
    opened.tenure.host.pace.clock = CLOCK
    return opened


async def test_a_backlog_of_plain_turns_does_not_stop_the_node(bench: Bench) -> None:
    opened = await work(bench)
    await bench.define("w", "worker", wanted="paused")
    for _ in range(5):
        await bench.publish("w", *[0.001] * 200)
    await rest(2)
    watch = Watch()
    bench.nursery.start_soon(watch.run)
    await bench.define("w", "worker", revision=2)
    await rest(5)
    assert (await bench.state_of("w"))["n"] == 1000
    assert CLOCK.now_s == pytest.approx(1.0)
    assert max(watch.stalls) <= SLICE_S + 0.002
    assert not opened.over


async def test_many_jobs_with_something_to_do_do_not_stop_it_either_and_all_have_their_turn(bench: Bench) -> None:
    await work(bench)
    for n in range(40):
        await bench.define(f"w{n}", "worker")
    await rest(2)
    watch = Watch()
    bench.nursery.start_soon(watch.run)
    await bench.send(*(bench.message(f"w{n}", 0.01) for n in range(40) for _ in range(5)))
    await rest(5)
    assert [(await bench.state_of(f"w{n}"))["n"] for n in range(40)] == [5] * 40
    assert max(watch.stalls) <= SLICE_S + 0.011


async def test_who_asks_is_answered_in_the_midst_of_a_backlog(bench: Bench) -> None:
    await work(bench)
    await bench.define("busy", "worker", wanted="paused")
    await bench.define("other", "worker")
    for _ in range(5):
        await bench.publish("busy", *[0.01] * 400)
    await rest(2)
    await bench.define("busy", "worker", revision=2)
    await bench.until(lambda: CLOCK.now_s > 0.2)
    assert (await bench.ask("other", 0.0)).ok
    assert CLOCK.now_s < 15.0  # of the twenty that the backlog takes


async def test_an_owner_that_closes_leaves_its_backlog_to_the_next_one(bench: Bench) -> None:
    first = await work(bench)
    await bench.define("w", "worker")
    for _ in range(5):
        await bench.publish("w", *[0.01] * 400)
    await bench.until(lambda: CLOCK.now_s > 0.2)
    await first.close()
    assert CLOCK.now_s < 5.0  # of the twenty that the backlog takes
    assert not first.over
    await work(bench)
    await rest(5)
    assert (await bench.state_of("w"))["n"] == 2000


async def test_partitions_of_a_node_share_its_time() -> None:
    pace, clock = Pace(CLOCK), CLOCK
    done: list[tuple[int, float]] = []
    rounds = 0

    async def partition(n: int) -> None:
        for _ in range(3):
            await pace.begin()
            assert clock.now_s < pace.ends_s
            while not pace.is_over():
                clock.now_s += 0.01
            pace.end()
            done.append((rounds, clock.now_s))

    async def count() -> None:
        nonlocal rounds
        while len(done) < 30:
            await trio.lowlevel.checkpoint()
            rounds += 1

    async with trio.open_nursery() as nursery:
        for n in range(10):
            nursery.start_soon(partition, n)
        nursery.start_soon(count)
    in_a_round = [sum(1 for its, _ in done if its == n) for n in range(rounds)]
    assert max(in_a_round) <= 2  # one, seen from a task that runs before or after it
    assert len(done) == 30


class Rounds(trio.abc.Instrument):
    """By how much something grew at most while the loop came round once."""

    def __init__(self, count: Callable[[], int]) -> None:
        self.count, self.most, self._before = count, 0, count()
        trio.lowlevel.add_instrument(self)

    def before_io_wait(self, timeout: float) -> None:
        now = self.count()
        self.most, self._before = max(self.most, now - self._before), now


async def leave_waiting(bench: Bench, jobs: int, *, type: JobType) -> None:
    """Jobs to which messages have come, and whose owner is gone."""
    first = await bench.open(type)
    for n in range(jobs):
        await bench.define(f"w{n}", type.name, wanted="paused")
    await rest(2)
    await bench.send(*(bench.message(f"w{n}", 0.01) for n in range(jobs)))
    await rest(2)
    await first.kill()
    for n in range(jobs):
        await bench.define(f"w{n}", type.name, revision=2)


async def test_jobs_for_which_something_waits_are_brought_back_some_at_a_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenure, "BROUGHT_A_SLICE", 5)
    await leave_waiting(bench, 60, type=WORKER)
    rounds: list[Rounds] = []

    def watched(host: Host, journal: Journal) -> Tenure:
        made = Tenure(host, journal)
        rounds.append(Rounds(lambda: len(made.lives.by_id)))
        return made

    await bench.open(WORKER, make=watched, definitions_sweep_s=1000.0)
    await bench.until(lambda: rounds[0].count() == 60)
    assert rounds[0].most <= 5
    await rest(2)
    assert [(await bench.state_of(f"w{n}"))["n"] for n in range(60)] == [1] * 60


class Waiter(Job):
    n: int = 0

    async def on_message(self, ctx: Context, message: float) -> int:
        BEGUN.append(ctx.id)
        self.n += 1
        return self.n


BEGUN: list[str] = []
WAITER = JobType("waiter", Waiter)


async def test_async_turns_begin_some_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "TASKS_A_PASS", 5)
    await leave_waiting(bench, 60, type=WAITER)
    BEGUN.clear()
    rounds = Rounds(lambda: len(BEGUN))
    await bench.open(WAITER)
    await rest(10)
    assert [(await bench.state_of(f"w{n}"))["n"] for n in range(60)] == [1] * 60
    assert rounds.most <= 10
    assert len(BEGUN) == 60


class Fails(Job):
    n: int = 0

    def on_message(self, ctx: Context, message: int) -> None:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        self.n += 1


async def test_what_is_to_be_tried_again_at_one_time_is_so_some_at_a_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarms, "RUNG_IN_ANY_CASE", 5)
    type = JobType("fails", Fails, retry=Retry(first_delay_s=3.0))
    opened = await bench.open(type)
    for n in range(60):
        await bench.define(f"w{n}", "fails")
    await rest(1)
    await bench.send(*(bench.message(f"w{n}", 1) for n in range(60)))
    await rest(1)
    assert len(opened.tenure.alarms.retries) == 60
    opened.tenure.host.pace.is_over = lambda: True  # type: ignore[method-assign]  # all of a slice is used up
    rounds = Rounds(lambda: -len(opened.tenure.alarms.retries))
    await bench.until(lambda: not opened.tenure.alarms.retries)
    assert rounds.most <= 5
    del opened.tenure.host.pace.is_over
    await rest(1)
    assert [(await bench.state_of(f"w{n}"))["n"] for n in range(60)] == [1] * 60


class Clocked(Job):
    at_s: float = 0.0

    def on_message(self, ctx: Context, message: int) -> None:
        self.at_s = CLOCK.now_s


async def test_messages_are_taken_while_very_many_definitions_are_seen(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = await bench.open(JobType("clocked", Clocked))
    opened.tenure.host.pace.clock = CLOCK
    await bench.define("a", "clocked")
    await rest(1)
    definitions = opened.tenure.definitions
    seen: list[str] = []

    def takes_time(id: str, *others: object) -> None:
        CLOCK.now_s += 0.01
        seen.append(id)

    monkeypatch.setattr(definitions, "_reconcile_seen", takes_time)
    stored = await bench.grid().get(Map.JOBS, P, b"a")
    assert stored is not None
    for n in range(1000):
        definitions.offer(f"new-{n}", stored)
    opened.tenure.hear_slot(slot_key(CLIENT, bench.lane, 0), encode(Batch([bench.message("a", 1)])))
    bench._sent = 1
    await bench.until(lambda: len(seen) == 1000)
    assert 0.0 < (await bench.state_of("a"))["at_s"] < 1.0


@pytest.mark.parametrize("virtual", [False, True])
def test_time_is_that_of_the_run(virtual: bool) -> None:
    clock = trio.testing.MockClock() if virtual else None

    async def read() -> None:
        pace = Pace()
        began_s, its_began_s = trio.current_time(), pace.clock()
        if isinstance(clock, trio.testing.MockClock):
            clock.jump(5)
        else:
            await trio.lowlevel.checkpoint()
        assert pace.clock() - its_began_s == pytest.approx(trio.current_time() - began_s, abs=0.05)

    trio.run(read, clock=clock)


class Patient(Job):
    async def on_start(self, ctx: Context) -> None:
        ctx.cron("* * * * *")

    async def on_timeout(self, ctx: Context) -> None:
        await trio.sleep(1000)


PATIENT = JobType("patient", Patient, misfire="catch_up")


async def test_jobs_that_catch_up_with_very_much_do_so_one_after_the_other_in_records_that_are_not_large(
    bench: Bench,
) -> None:
    first = await bench.open(PATIENT)
    jobs = [f"{n}{'-' * 300}" for n in range(70)]
    for id in jobs:
        await bench.define(id, "patient")
    await rest(3)
    await first.close()
    bench.skew_ms += 20 * 3600 * 1000
    opened = await bench.open(PATIENT, make=watched_pace)
    rounds = Rounds(lambda: sum(len(live.queue) > 1 for live in opened.tenure.lives.by_id.values()))
    await bench.until(lambda: rounds.count() == 70)
    assert rounds.most <= 1
    await rest(2)
    stored = [await bench.grid().get(Map.JOURNAL, P, journal_key(n)) for n in range(opened.tenure.journal.slot)]
    assert 2**20 > max(len(record) for record in stored if record is not None) > 100_000
    assert {len(mail) for mail in opened.state.mail.values()} == {1000}


def watched_pace(host: Host, journal: Journal) -> Tenure:
    host.pace.is_over = lambda: True  # type: ignore[method-assign]  # all of each slice is used up
    return Tenure(host, journal)

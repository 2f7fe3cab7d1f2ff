"""Removed jobs leave nothing after a while, and nothing that was forgotten comes back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import Raw

from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import MARKER, Cluster
from tenure.scheduler.context import Context
from tenure.scheduler.errors import NotDone, UnknownJob
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import Map
from tenure.scheduler.image import Frozen, thaw
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.settings import ClientSettings
from tenure.scheduler.snapshots.rehash import Restored
from tenure.scheduler.topic import Topic
from tenure.scheduler.wire import Definition, decode, encode
from tests.pure.core.bench import FORMATION, Bench, Opened, P, rest

KEPT_S, SWEEP_S = 60.0, 2.0
ENOUGH_S = KEPT_S + 5 * SWEEP_S


class Order(Job):
    """Does all that leaves something, and ends by itself when it is told to."""

    log: list[str] = []

    def on_start(self, ctx: Context) -> None:
        STARTS.append(ctx.turn_id)
        ctx.subscribe("news")
        ctx.wake_in(3600.0)

    async def on_message(self, ctx: Context, text: str) -> str:
        self.log.append(await ctx.once("append", lambda: text))
        if text == "end":
            ctx.finish()
        return text


class Short(Job):
    def on_start(self, ctx: Context) -> None:
        STARTS.append(ctx.turn_id)
        ctx.finish()


ORDER, SHORT = JobType("order", Order), JobType("short", Short)
STARTS: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_started() -> None:
    STARTS.clear()


async def opened_by(bench: Bench, **settings: float) -> Opened:
    return await bench.open(ORDER, SHORT, tombstone_s=KEPT_S, definitions_sweep_s=SWEEP_S, **settings)


@asynccontextmanager
async def client_of(bench: Bench, sender: bytes = b"\x01clientA", **settings: float) -> AsyncIterator[GridClient]:
    await bench.grid().put_if_absent(Map.NODES, 0, MARKER, encode(Cluster(FORMATION, 1, 1, True)))
    async with open_client(
        bench.grid(),
        registry=Registry(ORDER, SHORT),
        settings=ClientSettings(tombstone_s=KEPT_S, **settings),
        now_ms=bench.now_ms,
        sender=sender,
    ) as client:
        yield client


async def definition_of(bench: Bench, id: str) -> Definition:
    return decode(await bench.grid().get(Map.JOBS, P, id.encode()) or b"", Definition)


async def test_removed_jobs_finished_jobs_and_ids_that_never_were_leave_nothing(bench: Bench) -> None:
    opened = await opened_by(bench)
    async with client_of(bench) as client:
        for n in range(20):
            await client.defining.schedule("order", f"order{n}", {})
            await client.defining.schedule("short", f"short{n}", {})
            await client.publish(f"order{n}", "hello", id="said")
            await client.publish(f"typo{n}", "hello")
        for n in range(20):
            if n % 2:
                await client.defining.want(f"order{n}", "removed")
            else:
                await client.ask(f"order{n}", "end", id="ended")
        with pytest.raises(UnknownJob):
            await client.defining.want("never", "removed")
        await rest(KEPT_S / 2)
        assert len(await bench.keys(Map.JOBS)) == 61
        await rest(ENOUGH_S)
        letters = await client.directory.dead_letters()
        assert await client.directory.exhume(letters, replay=False) == 20
    assert await bench.keys(Map.JOBS) == []
    state, lives = opened.state, opened.tenure.lives
    for job in list(state.remembered):
        state.forget_expired(job, bench.now_ms() + 10**9)
    left = (state.jobs, state.mail, state.remembered, state.steps, state.subscribers, state.dead, lives.by_id)
    assert not any(left), left
    assert thaw(Frozen(state).chunks(1000)).meta() | {"dead": []} == state.meta() | {"dead": []}


async def test_a_generation_is_not_given_again_when_its_tombstone_is_gone(bench: Bench) -> None:
    opened = await opened_by(bench, image_journal_slots_max=4)
    async with client_of(bench) as client:
        for _ in range(3):
            await client.defining.schedule("order", "a", {})
            await client.ask("a", "end")
            await rest(1)
        await rest(ENOUGH_S)
        assert await bench.keys(Map.JOBS) == []
        for n in range(30):
            await client.defining.schedule("short", f"more{n}", {})  # so that there is an image
        await rest(5)
        await opened.kill()
        await opened_by(bench)
        await client.defining.schedule("order", "a", {})
        assert await client.ask("a", "hello") == "hello"
        await client.defining.want("a", "paused")
        await client.defining.want("a", "running")
        assert await client.ask("a", "again") == "again"
    of_a = [turn for turn in STARTS if turn.startswith("a/")]
    assert of_a == [f"a/{generation}/test/started" for generation in (1, 2, 3, 4)]


async def test_what_is_not_journaled_is_not_forgotten(bench: Bench) -> None:
    """A zombie, which can't commit, takes no tombstone away."""
    await bench.cluster.connect().set(Map.NODES, 0, MARKER, encode(Cluster(FORMATION, 1, 1, True)))
    zombie = await opened_by(bench, sweep_s=10_000)
    async with client_of(bench) as client:
        await client.defining.schedule("short", "a", {})
        await rest(5)
        second = await bench.open(ORDER, SHORT, tombstone_s=10 * KEPT_S, definitions_sweep_s=10_000)
        await rest(ENOUGH_S)
        assert zombie.over
        assert await bench.keys(Map.JOBS) == [b"a"]
        assert second.state.generations == 0


async def test_while_a_node_of_an_older_version_lives_tombstones_stay(bench: Bench) -> None:
    """It would not know of the generations that were given."""
    nodes = [NodeInfo("older", 1)]
    opened = await opened_by(bench)
    opened.tenure.host.live_nodes = lambda: nodes
    async with client_of(bench) as client:
        await client.defining.schedule("short", "a", {})
        await rest(2 * ENOUGH_S)
        assert await bench.keys(Map.JOBS) == [b"a"]
        nodes[:] = [NodeInfo("newer", 1, names=True)]
        await rest(ENOUGH_S)
        assert await bench.keys(Map.JOBS) == []


@pytest.mark.parametrize("fault", [Fault.WEAK, Fault.APPLIED_UNKNOWN, Fault.LATE_UNKNOWN, Fault.REFUSED])
async def test_a_tombstone_whose_removal_fails_goes_with_a_later_sweep(bench: Bench, fault: Fault) -> None:
    await opened_by(bench)
    async with client_of(bench) as client:
        await client.defining.schedule("short", "a", {})
        await rest(5)
        bench.faults.once(fault, map=Map.JOBS, times=3)
        await rest(ENOUGH_S + 30)
        assert await bench.keys(Map.JOBS) == []
        await client.defining.schedule("short", "a", {})
        await rest(5)
    assert STARTS == ["a/1/test/started", "a/2/test/started"]


@pytest.mark.parametrize("skew_ms", [-3_600_000, 3_600_000, 10**12])
async def test_tombstones_of_clients_with_other_clocks_go_too(bench: Bench, skew_ms: int) -> None:
    opened = await opened_by(bench)
    async with client_of(bench) as client:
        client.now_ms = lambda: bench.now_ms() + skew_ms
        await client.defining.schedule("order", "a", {})
        await client.ask("a", "hello")
        await client.defining.want("a", "removed")
        await rest(ENOUGH_S + KEPT_S)
        assert await bench.keys(Map.JOBS) == []
        await client.defining.schedule("order", "a", {})
        await client.ask("a", "hello")
    assert opened.state.jobs["a"].generation == 2


async def test_tombstones_of_older_versions_go_too_and_their_generations_are_not_given_again(bench: Bench) -> None:
    await bench.form()
    old = Definition("order", Raw(b"\xc0"), 7, 9, "removed")
    await bench.grid().set(Map.JOBS, P, b"a", encode(old))
    await bench.grid().set(Map.JOBS, P, b"typo", encode(Definition("", Raw(b"\xc0"), 0, 0, "removed")))
    opened = await opened_by(bench)
    await rest(KEPT_S / 2)
    assert len(await bench.keys(Map.JOBS)) == 2
    await rest(ENOUGH_S)
    assert await bench.keys(Map.JOBS) == []
    await bench.define("a", "order")  # as an older client does: where there is nothing
    await bench.publish("a", "hello")
    await rest(5)
    assert opened.state.jobs["a"].generation == 8
    assert (await definition_of(bench, "a")).generation == 8


async def test_what_is_purged_leaves_no_steps(bench: Bench) -> None:
    async def fail(job: Job, ctx: Context, message: str) -> None:
        await ctx.once("step", lambda: "done")
        raise RuntimeError("on purpose")

    class Failing(Job):
        on_message = fail

    opened = await bench.open(JobType("failing", Failing))
    await bench.define("a", "failing")
    await bench.publish("a", "one", "two")
    await rest(5)
    assert opened.state.steps
    answer = await bench.command("purge", "a")  # also what is to be tried again
    assert decode(b"\x01\x00" + bytes(answer.body), int) == 2
    assert not opened.state.steps
    assert not opened.state.mail
    assert not opened.state.dead


# -- what comes late ---------------------------------------------------------------------------------


async def test_a_definition_that_arrives_when_its_job_was_forgotten_makes_no_job(bench: Bench) -> None:
    bench.faults.late_s_max = 10 * ENOUGH_S
    await opened_by(bench)
    for n in range(20):
        async with client_of(bench, b"\x01client%d" % (n % 10)) as client:
            bench.faults.once(Fault.LATE_UNKNOWN, map=Map.JOBS, times=1 + n % 3)
            await client.defining.schedule("short", f"a{n}", {}, deadline_s=20.0)
    await rest(12 * ENOUGH_S)
    assert sorted(STARTS) == sorted(f"a{n}/1/test/started" for n in range(20)), "each was made once"
    assert bench.faults.counts[Fault.LANDED_LATE] >= 20
    assert await bench.keys(Map.JOBS) == []


async def test_a_job_that_has_finished_is_not_made_again_by_who_did_not_hear_that_it_was_made(bench: Bench) -> None:
    await opened_by(bench)
    async with client_of(bench, retry_pause_s=2.0, retry_pause_max_s=2.0) as client:
        bench.faults.once(Fault.STALE_TAKEN, map=Map.JOBS)  # for the tombstone that it puts first: no harm
        bench.faults.once(Fault.APPLIED_UNKNOWN, map=Map.JOBS)
        await client.defining.schedule("short", "a", {})
        await rest(5)
    assert STARTS == ["a/1/test/started"]


async def test_who_does_not_know_for_long_whether_a_job_was_made_does_not_try_again(bench: Bench) -> None:
    await opened_by(bench)
    async with client_of(bench, retry_pause_s=2 * ENOUGH_S, retry_pause_max_s=2 * ENOUGH_S) as client:
        bench.faults.once(Fault.STALE_TAKEN, map=Map.JOBS)
        bench.faults.once(Fault.APPLIED_UNKNOWN, map=Map.JOBS)
        with pytest.raises(NotDone, match="look before you schedule it again"):
            await client.defining.schedule("short", "a", {}, deadline_s=float("inf"))
        await rest(5)
    assert STARTS == ["a/1/test/started"]


async def test_restored_partitions_know_what_was_given() -> None:
    assert (await Restored().state(5, 7)).generations == 7


async def test_a_million_finished_jobs_an_hour_leave_less_than_50_mib(bench: Bench) -> None:
    """A thousandth of them, in a thousandth of the bytes."""
    await opened_by(bench, image_journal_slots_max=20)
    async with client_of(bench) as client:
        for n in range(1000):
            await client.defining.schedule("short", f"order-{n:06}", {})
        await client.publish_many([(f"typo-{n:06}", n) for n in range(1000)])
        await client.publish(Topic("news"), 1)
        await rest(KEPT_S + 60)
        await client.directory.exhume(await client.directory.dead_letters(), replay=False)
        for n in range(40):
            await client.publish(Topic("news"), n)  # so that there is a new image
            await rest(1)
    copies = bench.cluster.sides[0].copies[P][0]
    sizes = {map.name: sum(len(k) + len(v) for k, v in entries.items()) for map, entries in copies.entries.items()}
    assert not copies.entries[Map.JOBS]
    assert sum(sizes.values()) < 50 * 1024, sizes

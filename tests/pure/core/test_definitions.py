"""What an owner does about definitions: it acts on none that it has merely seen, whatever reads and events show."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from msgspec import Raw
from msgspec.structs import replace

from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import MARKER, Cluster
from tenure.scheduler.context import Context
from tenure.scheduler.definitions import removed
from tenure.scheduler.errors import JobRemoved
from tenure.scheduler.grid.memory import Fault
from tenure.scheduler.grid.port import GridError, Map, Unknown
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.wire import Definition, Status, decode, encode
from tests.pure.core.bench import FORMATION, Bench, Opened, P, rest


class Account(Job):
    total: int = 0
    starts: int = 0

    def on_start(self, ctx: Context) -> None:
        self.starts += 1

    def on_message(self, ctx: Context, amount: int) -> int:
        self.total += amount
        return self.total

    def on_stop(self, ctx: Context) -> None:
        STOPPED.append(self.total)


class Note(Job):
    texts: list[str] = []

    def on_message(self, ctx: Context, text: str) -> list[str]:
        self.texts.append(text)
        return self.texts


ACCOUNT, NOTE = JobType("account", Account), JobType("note", Note)
STOPPED: list[int] = []


@asynccontextmanager
async def client_of(bench: Bench, sender: bytes = b"\x01clientA") -> AsyncIterator[GridClient]:
    await bench.grid().put_if_absent(Map.NODES, 0, MARKER, encode(Cluster(FORMATION, 1, 1, True)))
    registry = Registry(ACCOUNT, NOTE)
    async with open_client(bench.grid(), registry=registry, now_ms=bench.now_ms, sender=sender) as client:
        yield client


async def definition_of(bench: Bench, id: str) -> tuple[Definition, bytes]:
    stored = await bench.grid().get(Map.JOBS, P, id.encode())
    assert stored is not None
    return decode(stored, Definition), stored


async def change_weakly(bench: Bench, id: str, wanted: str) -> None:
    """A client's change that only its primary holds; the client hears 'unknown', and dies. Nor gets anything else
    through to a backup, until that member has died, too."""
    there, stored = await definition_of(bench, id)
    new = removed(there, 0) if wanted == "removed" else Definition(*there_with(there, wanted))
    bench.faults.weak_s = None
    bench.faults.once(Fault.WEAK, map=Map.JOBS, times=10_000)
    with pytest.raises(GridError):
        await bench.grid().replace_if_same(Map.JOBS, P, id.encode(), stored, encode(new))
    await rest(5)
    bench.cluster.kill_member(bench.cluster.primary(P))
    bench.cluster.add_member()
    bench.faults.end()
    assert decode(await bench.grid().get(Map.JOBS, P, id.encode()) or b"", Definition) == there


def there_with(there: Definition, wanted: str) -> tuple[str, Raw, int, int, str, int]:
    return there.type, there.parameters, there.generation, there.revision + 1, wanted, there.version


async def test_a_removal_that_is_lost_with_its_member_was_never_acted_on(bench: Bench) -> None:
    STOPPED.clear()
    bench.cluster.add_member()
    await bench.open(ACCOUNT, definitions_sweep_s=2.0)
    async with client_of(bench) as client:
        await client.defining.schedule("account", "a", {})
        for _ in range(3):
            await client.ask("a", 100)
        await change_weakly(bench, "a", "removed")
        await rest(10)
        assert await client.ask("a", 1) == 301
        assert STOPPED == []
        assert (await client.state("a")).starts == 1


async def test_a_pause_that_is_lost_with_its_member_does_not_outlast_the_next_resume(bench: Bench) -> None:
    bench.cluster.add_member()
    await bench.open(ACCOUNT, definitions_sweep_s=2.0)
    async with client_of(bench) as client:
        await client.defining.schedule("account", "a", {})
        await client.ask("a", 1)
        await change_weakly(bench, "a", "paused")
        await client.defining.want("a", "running")
        assert await client.ask("a", 1, deadline_s=5.0) == 2


@pytest.mark.parametrize(("then", "now"), [("paused", "running"), ("running", "paused")])
async def test_the_map_counts_where_the_journal_differs_at_the_same_revision(bench: Bench, then: str, now: str) -> None:
    # An older version acted on what it had merely seen: such journals are there.
    opened = await bench.open(ACCOUNT, definitions_sweep_s=2.0)
    await bench.define("a", "account", revision=1, wanted=now)
    await bench.publish("a", 1)
    await rest(1)
    await bench.define("a", "account", revision=2, wanted=then)
    await rest(1)
    assert opened.state.jobs["a"].status == then
    await bench.define("a", "account", revision=2, wanted=now)
    assert (await bench.command("reconcile", "a", revision=2)).ok
    assert opened.state.jobs["a"].status == now, "it was told that it is"


@pytest.mark.parametrize(("then", "now"), [("paused", "running"), ("running", "paused")])
async def test_the_map_counts_where_the_journal_is_ahead_of_it(bench: Bench, then: str, now: str) -> None:
    # The same, and the client never came back.
    opened = await bench.open(ACCOUNT, definitions_sweep_s=2.0)
    await bench.define("a", "account", revision=1, wanted=now)
    await rest(1)
    await bench.define("a", "account", revision=2, wanted=then)
    await rest(1)
    assert opened.state.jobs["a"].status == then
    await bench.define("a", "account", revision=1, wanted=now)
    await rest(10)
    assert opened.state.jobs["a"].status == now


async def test_an_owner_that_can_not_prove_a_change_does_not_say_that_it_is_made(bench: Bench) -> None:
    opened = await bench.open(ACCOUNT)
    await bench.define("a", "account")
    await rest(1)
    await bench.define("a", "account", revision=2, wanted="paused")
    bench.faults.once(Fault.REFUSED, map=Map.JOBS, times=10_000)
    with pytest.raises(trio.TooSlowError):
        await bench.ask("a", {"op": "reconcile", "revision": 2}, kind=6, patience_s=5)
    assert opened.state.jobs["a"].status == Status.RUNNING
    bench.faults.end()
    await rest(5)
    assert opened.state.jobs["a"].status == Status.PAUSED


def prove_slowly(opened: Opened) -> None:
    """The first look-up of a definition hears of what it has proved 10 s later."""
    grid = opened.tenure.host.grid
    prove, proofs = grid.replace_if_same, 0

    async def slow_at_first(map: Map, partition: int, key: bytes, old: bytes, new: bytes) -> bool:
        nonlocal proofs
        proofs += map is Map.JOBS
        is_first = map is Map.JOBS and proofs == 1
        found = await prove(map, partition, key, old, new)
        if is_first:
            await trio.sleep(10)
        return found

    grid.replace_if_same = slow_at_first  # type: ignore[method-assign]


@pytest.mark.parametrize("wanted", ["paused", "removed"])
async def test_nobody_is_told_that_a_change_is_made_while_its_job_is_about_to_be(bench: Bench, wanted: str) -> None:
    """What the job is made of was proved, and is changed before its owner has heard that."""
    opened = await bench.open(ACCOUNT, definitions_sweep_s=1000)
    prove_slowly(opened)
    await bench.define("a", "account")
    await rest(1)
    await bench.define("a", "account", revision=2, wanted=wanted)
    assert (await bench.command("reconcile", "a", revision=2)).ok
    await bench.publish("a", 5)
    await rest(5)
    if wanted == "paused":
        assert (await bench.state_of("a"))["total"] == 0
        assert opened.state.jobs["a"].status == Status.PAUSED
    else:
        assert opened.state.jobs == {}
        assert [letter.reason for letter in opened.state.dead.values()] == ["JobRemoved"]


async def test_a_job_that_is_scheduled_while_its_id_is_looked_up_starts_at_once(bench: Bench) -> None:
    """Somebody has sent to it before, and its owner is about to hear that there was none."""
    opened = await bench.open(ACCOUNT, definitions_sweep_s=1000)
    grid, put = opened.tenure.host.grid, opened.tenure.host.grid.put_if_absent

    async def slow(map: Map, *arguments: Any) -> bytes | None:
        found = await put(map, *arguments)
        if map is Map.JOBS:
            await trio.sleep(10)
        return found

    grid.put_if_absent = slow  # type: ignore[method-assign]
    await bench.publish("a", 5)
    await rest(5)
    there, _ = await definition_of(bench, "a")
    await bench.define("a", "account", revision=there.revision + 1)
    await rest(10)
    assert opened.state.jobs["a"].turns == 1
    assert [letter.reason for letter in opened.state.dead.values()] == ["UnknownJob"]


async def test_a_job_that_reads_absent_is_no_unknown_job(bench: Bench) -> None:
    opened = await bench.open(ACCOUNT, hints=False, definitions_sweep_s=1000, sweep_s=0.2)
    await rest(2)
    await bench.define("a", "account")
    bench.faults.once(Fault.ABSENT, map=Map.JOBS)
    await bench.publish("a", 5)
    await rest(5)
    assert bench.faults.counts[Fault.ABSENT] == 1
    assert not opened.state.dead
    assert await bench.state_of("a") == {"total": 5, "starts": 1}


async def test_a_removed_job_that_reads_as_it_was_is_not_made_again(bench: Bench) -> None:
    opened = await bench.open(ACCOUNT, hints=False, definitions_sweep_s=1000, sweep_s=0.2)
    await rest(2)
    await bench.define("a", "account")
    await rest(0.5)
    there, _ = await definition_of(bench, "a")
    await bench.grid().set(Map.JOBS, P, b"a", encode(removed(there, 0)))
    bench.faults.once(Fault.STALE, map=Map.JOBS)
    bench.faults.stale_s = 60.0
    await bench.publish("a", 5)
    await rest(5)
    assert bench.faults.counts[Fault.STALE] == 1
    assert "a" not in opened.state.jobs
    assert [letter.reason for letter in opened.state.dead.values()] == ["JobRemoved"]


async def test_an_old_definition_that_comes_late_changes_nothing(bench: Bench) -> None:
    opened = await bench.open(ACCOUNT)
    await bench.define("a", "account", generation=1, revision=1)
    _, first = await definition_of(bench, "a")
    await bench.define("a", "account", generation=1, revision=2, wanted="paused")
    _, paused = await definition_of(bench, "a")
    await bench.define("a", "account", generation=2, revision=4)
    await rest(1)
    record = opened.state.jobs["a"]
    for late in (first, paused):
        opened.tenure.offer_definition("a", late)
        await rest(1)
    assert opened.state.jobs["a"] == record
    assert record.generation == 2


async def test_a_job_that_ends_as_it_begins_is_not_gone_before_that_is_committed(bench: Bench) -> None:
    class Passer(Job):
        def on_start(self, ctx: Context) -> None:
            ctx.send("note", "I was here")
            ctx.finish()

    passer = JobType("passer", Passer)
    first = await bench.open(passer, NOTE)
    await bench.define("note", "note")
    await rest(1)
    bench.faults.once(Fault.DROPPED_UNKNOWN, map=Map.JOURNAL, times=10_000)
    await bench.define("a", "passer")
    await rest(2)
    await first.kill()
    bench.faults.end()
    await bench.open(passer, NOTE)
    await rest(5)
    assert await bench.state_of("note") == {"texts": ["I was here"]}
    assert (await definition_of(bench, "a"))[0].wanted == "removed"


# -- another type under the same id ------------------------------------------------------------------


async def test_what_waits_for_a_job_goes_to_the_one_that_is_made_under_another_type(bench: Bench) -> None:
    STOPPED.clear()
    opened = await bench.open(ACCOUNT, NOTE)
    async with client_of(bench) as client:
        await client.defining.schedule("account", "a", {})
        await client.ask("a", 7)
        await client.defining.want("a", "paused")
        await client.publish("a", 8)
        await client.defining.want("a", "removed")
        with pytest.raises(JobRemoved):
            await client.ask("a", 9)
        await client.defining.schedule("note", "a", {})
        assert await client.ask("a", "hello") == ["hello"]
        assert opened.state.jobs["a"].type == "note"
        assert [letter.reason for letter in opened.state.dead.values()] == ["JobRemoved", "JobRemoved"]
        assert STOPPED == [7]


async def test_a_job_is_made_under_another_type_while_its_turn_runs(bench: Bench) -> None:
    log: list[str] = []

    async def slow(job: Account, ctx: Context, message: str) -> None:
        log.append(f"slow {message} begins")
        await trio.sleep(20)
        log.append(f"slow {message} ends")

    class Slow(Job):
        on_message = slow

        def on_stop(self, ctx: Context) -> None:
            log.append("slow stops")

    await bench.open(JobType("slow", Slow), NOTE)
    await bench.define("a", "slow")
    await bench.publish("a", "one", "two")
    await rest(1)
    there, _ = await definition_of(bench, "a")
    await bench.define("a", "note", generation=2, revision=there.revision + 2)
    await rest(1)
    await bench.publish("a", "three")
    await rest(5)
    second = await bench.open(JobType("slow", Slow), NOTE)
    await rest(60)
    assert await bench.state_of("a") == {"texts": ["three"]}
    assert second.state.jobs["a"].type == "note"
    assert log == [
        "slow one begins",
        "slow one begins",
        "slow one ends",
        "slow two begins",
        "slow two ends",
        "slow stops",
    ]


@pytest.mark.parametrize("by", ["lost", "another"])
async def test_what_is_sent_when_a_job_is_made_anew_is_not_for_the_one_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    opened = await bench.open(ACCOUNT, hints=False, definitions_sweep_s=100.0)  # hears of no definition for long
    async with client_of(bench) as client:
        await client.defining.schedule("account", "a", {})
        await client.ask("a", 5)
        await rest(2)
        grid: Any = client.grid
        stored = await grid.get(Map.JOBS, P, b"a")
        gone = removed(decode(stored, Definition), bench.now_ms())
        assert await grid.replace_if_same(Map.JOBS, P, b"a", stored, encode(gone))  # its client dies
        if by == "another":
            anew = replace(decode(stored, Definition), generation=2, revision=gone.revision + 1, birth=b"another")
            assert await grid.replace_if_same(Map.JOBS, P, b"a", encode(gone), encode(anew))
        else:
            change, lost = grid.replace_if_same, list[bool]()

            async def lose_one(map: Map, *arguments: Any, **options: Any) -> bool:
                done: bool = await change(map, *arguments, **options)
                if done and map is Map.JOBS and not lost:
                    lost.append(True)
                    raise Unknown("the answer was lost")
                return done

            monkeypatch.setattr(grid, "replace_if_same", lose_one)
        await client.defining.schedule("account", "a", {})
        await client.publish("a", 1)
        opened.tenure.sweeping.soon()
        await rest(1)
        opened.tenure.definitions.sweep_soon()
        await rest(5)
        assert (await client.state("a")).total == 1

"""What comes while a partition is being opened is not left to the next sweep."""

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from tenure.listeners.entries import DefinitionEntries, InboxEntries
from tenure.listeners.ownership import OwnershipChanges
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import EntryEvent, GridError, Map, Member, Ownership, OwnershipEvent, Refused
from tenure.scheduler.heard import Heard
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.keys import slot_key
from tenure.scheduler.sweeping import Sweeping
from tenure.scheduler.tenure import Tenure
from tenure.scheduler.wire import Batch, encode
from tests.pure.core.bench import CLIENT, Bench, rest


async def test_the_sweep_beside_an_opening_finds_what_is_there_however_often_it_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    grid = MemoryCluster(partitions=1, members=1, backups=0).connect()
    for n in range(5):
        await grid.set(Map.INBOX, 0, b"slot %d" % n, b"value %d" % n)
    refusals = [Refused("not now"), Refused("nor now")]
    real = grid.scan

    def scan(*args: object, **options: object) -> object:
        if refusals:
            return refusing(refusals.pop())
        return real(*args, **options)  # type: ignore[arg-type]

    async def refusing(error: GridError) -> object:  # type: ignore[misc]
        raise error
        yield

    grid.scan = scan  # type: ignore[method-assign, assignment]
    pauses: list[int] = []

    async def pause(attempt: int) -> None:
        pauses.append(attempt)
        await trio.sleep(0.1)

    heard = Heard()
    await heard.sweep(grid, 0, pause)
    assert heard.slots == {b"slot %d" % n: b"value %d" % n for n in range(5)}
    assert pauses == [1, 2]


def test_events_go_to_what_is_open_or_being_opened_and_nowhere_else() -> None:
    heard, opened = Heard(), Heard()
    open_here = SimpleNamespace(
        hear_slot=opened.slots.__setitem__,
        offer_definition=opened.definitions.__setitem__,
    )
    node = cast(Any, SimpleNamespace(tenures={1: open_here}, heard={2: heard}))
    for listener, map in ((InboxEntries(node), Map.INBOX), (DefinitionEntries(node), Map.JOBS)):
        listener([EntryEvent(map, partition, b"key", b"value") for partition in (1, 2, 3)])
        listener([EntryEvent(map, 2, b"gone", None)])
    for found in (heard, opened):
        assert found.slots == {b"key": b"value"}
        assert found.definitions == {"key": b"value"}


async def test_what_was_heard_is_taken_though_no_event_and_no_sweep_tells_of_it_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counter(Job):
        seen: list[int] = []

        def on_message(self, ctx: object, message: int) -> None:
            self.seen.append(message)

    heard = Heard()
    real = Tenure.run

    async def run(self: Tenure, *, crashed: bool) -> None:
        await real(self, crashed=crashed, heard=heard)

    first = await bench.open(JobType("counter", Counter))
    await bench.define("c", "counter")
    await first.close()
    heard.slots[slot_key(CLIENT, 1, 0)] = encode(Batch([bench.message("c", 7)]))
    monkeypatch.setattr(Tenure, "run", run)
    opened = await bench.open(JobType("counter", Counter), sweep_s=1000.0)
    await rest(1)
    assert b"\x07" in bytes(opened.state.jobs["c"].state)


@pytest.mark.parametrize("event", [OwnershipEvent.RECONNECTED, OwnershipEvent.PARTITION_LOST])
def test_events_that_may_have_been_lost_are_made_up_for_where_a_partition_is_open_and_where_it_is_being_opened(
    event: OwnershipEvent,
) -> None:
    heard, swept, looked = Heard(), [], []
    tenure = SimpleNamespace(sweep_soon=lambda: swept.append(1))
    node = cast(Any, SimpleNamespace(tenures={1: tenure}, heard={2: heard}, look=lambda: looked.append(1)))
    OwnershipChanges(node)(event)
    assert swept == [1]
    assert looked
    assert heard.again


def test_what_a_leaving_member_did_not_tell_is_looked_for_also_where_it_has_given_it_away_already() -> None:
    swept: list[int] = []
    tenures = {n: SimpleNamespace(sweep_soon=partial(swept.append, n)) for n in range(6)}
    one, two = Member("one", "127.0.0.1", 1), Member("two", "127.0.0.1", 2)
    before = Ownership(1, (one, two), ("one", "two") * 3, "one")
    grid: Any = SimpleNamespace(ownership=lambda: seen[-1])
    node = cast(Any, SimpleNamespace(tenures=tenures, heard={}, look=lambda: None, grid=grid))
    changes, seen = OwnershipChanges(node), [before]
    for primaries, leaving, wanted in (
        (before.primaries, set(), []),
        (("one", "one", "one", "two", "one", "two"), {"two"}, [1, 3, 5]),  # by the first it is known
        (("one", "one", "one", "one", "one", "two"), {"two"}, [3]),
        (("one",) * 6, set(), [5]),
        (("one",) * 5 + ("two",), set(), []),  # one that comes
    ):
        swept.clear()
        seen.append(before._replace(primaries=tuple(primaries), leaving=frozenset(leaving)))
        changes(OwnershipEvent.PARTITIONS)
        assert sorted(swept) == wanted


@pytest.mark.parametrize("again", [True, False])
async def test_a_tenure_sweeps_at_once_if_events_may_have_been_lost_while_it_was_opened(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    heard = Heard()
    heard.again = again
    real, sweeps = Tenure.run, []
    inbox = Sweeping.inbox

    async def run(self: Tenure, *, crashed: bool) -> None:
        await real(self, crashed=crashed, heard=heard)

    async def counted(self: Sweeping) -> bool:
        sweeps.append(1)
        return await inbox(self)

    monkeypatch.setattr(Tenure, "run", run)
    monkeypatch.setattr(Sweeping, "inbox", counted)
    await bench.open(JobType("counter", Job), sweep_s=1000.0)
    await rest(1)
    assert bool(sweeps) == again

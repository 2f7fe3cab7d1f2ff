"""Every hazard of an event can be shown: lost, late, twice, overtaken, none at all."""

import trio

from tenure.scheduler.grid.memory import Fault, Faults, FaultyCluster, FaultyGrid
from tenure.scheduler.grid.port import EntryEvent, Map, OwnershipEvent

P = 3


def connected(faults: Faults, **cluster: int) -> tuple[FaultyCluster, FaultyGrid]:
    cluster_ = FaultyCluster(faults=faults, partitions=8, **cluster)  # type: ignore[arg-type]
    return cluster_, cluster_.connect()


async def write(grid: FaultyGrid, *values: bytes) -> None:
    for value in values:
        await grid.set(Map.JOBS, P, b"k", value)


async def test_an_event_may_be_lost() -> None:
    faults = Faults()
    _, grid = connected(faults)
    heard: list[EntryEvent] = []
    async with grid.listen(Map.JOBS, heard.extend):
        faults.once(Fault.EVENT_LOST)
        await write(grid, b"1", b"2")
        await trio.sleep(10)
    assert [event.value for event in heard] == [b"2"]
    assert faults.counts == {Fault.EVENT_LOST: 1}


async def test_an_event_may_be_late() -> None:
    faults = Faults()
    _, grid = connected(faults)
    heard: list[EntryEvent] = []
    async with grid.listen(Map.JOBS, heard.extend):
        faults.once(Fault.EVENT_DELAYED)
        await write(grid, b"1", b"2")
        await trio.sleep(10)
    assert [event.value for event in heard] == [b"2", b"1"]
    assert faults.counts == {Fault.EVENT_DELAYED: 1}


async def test_an_event_may_come_twice() -> None:
    faults = Faults()
    _, grid = connected(faults)
    heard: list[EntryEvent] = []
    async with grid.listen(Map.JOBS, heard.extend):
        faults.once(Fault.EVENT_DOUBLED)
        await write(grid, b"1", b"2")
        await trio.sleep(10)
    assert [event.value for event in heard] == [b"1", b"2", b"1"]
    assert faults.counts == {Fault.EVENT_DOUBLED: 1}


async def test_an_event_may_be_overtaken() -> None:
    faults = Faults()
    _, grid = connected(faults)
    heard: list[EntryEvent] = []
    async with grid.listen(Map.JOBS, heard.extend):
        faults.once(Fault.EVENT_REORDERED)
        await write(grid, b"1", b"2", b"3")
        await trio.sleep(1)
        faults.once(Fault.EVENT_REORDERED)
        await write(grid, b"last")
        await trio.sleep(1)
    assert [event.value for event in heard] == [b"2", b"1", b"3", b"last"]
    assert faults.counts == {Fault.EVENT_REORDERED: 1}, "the last one was overtaken by nobody"


async def test_all_events_may_be_dropped() -> None:
    faults = Faults()
    _, grid = connected(faults)
    heard: list[EntryEvent] = []
    async with grid.listen(Map.JOBS, heard.extend), grid.listen(Map.JOBS, heard.extend, key=(P, b"k")):
        faults.drop_all_events = True
        await write(grid, *[b"x"] * 20)
        await grid.delete(Map.JOBS, P, b"k")
        await trio.sleep(10)
        assert heard == []
        assert faults.counts == {Fault.EVENT_LOST: 42}
        faults.end()
        await write(grid, b"heard again")
        await trio.sleep(1)
        assert len(heard) == 2


async def test_a_connection_hears_nothing_until_it_listens_at_its_next_member() -> None:
    faults = Faults()
    faults.relisten_s = (1.0, 1.0)
    cluster, grid = connected(faults, members=3)
    heard: list[EntryEvent] = []
    async with grid.listen(Map.JOBS, heard.extend, key=(P, b"k")):
        assert grid.paired is not None
        cluster.kill_member(grid.paired)
        await write(grid, b"missed")
        await trio.sleep(1.1)
        await write(grid, b"heard")
        await trio.sleep(1)
    assert [event.value for event in heard] == [b"heard"]
    assert faults.counts[Fault.EVENT_LOST] == 1


async def test_hints_of_ownership_may_be_lost_and_late() -> None:
    faults = Faults({Fault.OWNERSHIP_HINT_LOST: 1.0})
    faults.ownership_lag_s = (2.0, 2.0)
    cluster, grid = connected(faults, members=2)
    before = grid.ownership()
    told: list[OwnershipEvent] = []
    async with grid.watch_ownership(told.append):
        joined = cluster.add_member()
        await trio.sleep(1.9)
        assert grid.ownership() == before, "word of it has not come yet"
        await trio.sleep(0.2)
        assert joined in grid.ownership().primaries
        assert told == []
        faults.end()
        cluster.kill_member(joined)
        await trio.sleep(3)
        assert OwnershipEvent.MEMBERS in told
    assert faults.counts[Fault.OWNERSHIP_HINT_LOST] >= 2

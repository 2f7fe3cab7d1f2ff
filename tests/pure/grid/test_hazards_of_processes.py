"""A connection's process can be frozen or killed wherever a call of it returns."""

import pytest
import trio

from tenure.scheduler.grid.memory import Fault, Faults, FaultyCluster, MemoryCluster, MemoryGrid
from tenure.scheduler.grid.port import EntryEvent, Map, OwnershipEvent, Unknown


@pytest.fixture(params=["memory", "faulty"])
def cluster(request: pytest.FixtureRequest) -> MemoryCluster:
    if request.param == "memory":
        return MemoryCluster(partitions=8, members=3)
    return FaultyCluster(faults=Faults(), partitions=8, members=3)


async def test_a_frozen_process_hears_nothing_until_it_thaws(cluster: MemoryCluster) -> None:
    grid, other = cluster.connect(member="m0"), cluster.connect(member="m0")
    heard: list[EntryEvent] = []
    returned: list[float] = []

    async def put() -> None:
        assert await grid.put_if_absent(Map.JOBS, 0, b"mine", b"v") is None
        returned.append(trio.current_time())

    async def freeze() -> None:
        grid.before_return = None
        grid.freeze()

    async with trio.open_nursery() as nursery, grid.listen(Map.JOBS, heard.extend, key=(0, b"k")):
        grid.before_return = freeze
        nursery.start_soon(put)
        await trio.sleep(1)
        assert await other.get(Map.JOBS, 0, b"mine") == b"v", "what was sent has taken effect"
        await other.set(Map.JOBS, 0, b"k", b"event")
        await trio.sleep(1)
        assert returned == []
        assert heard == []
        grid.thaw()
        await trio.sleep(0.1)
        assert [event.value for event in heard] == [b"event"]
    assert returned == [pytest.approx(2, abs=0.01)]


async def test_a_frozen_process_goes_on_from_what_it_saw_last() -> None:
    cluster = FaultyCluster(faults=Faults(), partitions=8, members=3)
    grid = cluster.connect(member="m0")
    told: list[tuple[OwnershipEvent, bool]] = []
    before = grid.ownership()
    async with grid.watch_ownership(lambda event: told.append((event, "m2" in grid.ownership().primaries))):
        grid.freeze()
        cluster.kill_member("m2")
        await trio.sleep(1)
        assert grid.ownership() == before
        grid.thaw()
        assert grid.ownership() == before
        await trio.sleep(0.1)
    assert told[0] == (OwnershipEvent.MEMBERS, False)


async def test_a_frozen_process_sends_nothing_new(cluster: MemoryCluster) -> None:
    grid, other = cluster.connect(), cluster.connect()
    grid.freeze()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(grid.set, Map.JOBS, 0, b"k", b"v")
        grid.discard(Map.JOBS, 0, [b"k"])
        await trio.sleep(60)
        assert await other.get(Map.JOBS, 0, b"k") is None
        grid.thaw()
    assert await other.get(Map.JOBS, 0, b"k") == b"v"


async def test_a_frozen_process_does_not_see_its_own_deadlines_pass(cluster: MemoryCluster) -> None:
    grid = cluster.connect()
    returned: list[float] = []

    async def call() -> None:
        with trio.move_on_after(0.5):
            await grid.set(Map.JOBS, 0, b"k", b"v")
        returned.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        grid.freeze()
        nursery.start_soon(call)
        await trio.sleep(5)
        assert returned == []
        grid.thaw()
    assert returned[0] >= 5


async def test_a_killed_process_gets_no_answer_and_has_no_effect(cluster: MemoryCluster) -> None:
    grid, other = cluster.connect(), cluster.connect()
    heard: list[EntryEvent] = []
    async with trio.open_nursery() as nursery, grid.listen(Map.JOBS, heard.extend):
        grid.kill()
        for call in (
            lambda: grid.set(Map.JOBS, 0, b"k", b"v"),
            lambda: grid.put_if_absent(Map.JOBS, 0, b"k", b"v"),
            lambda: grid.get(Map.JOBS, 0, b"k"),
        ):

            async def hang(call=call) -> None:  # type: ignore[no-untyped-def]
                await call()
                raise AssertionError("a killed process heard of its call")

            nursery.start_soon(hang)
        grid.discard(Map.JOBS, 0, [b"there"])
        await other.set(Map.JOBS, 0, b"there", b"v")
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    await trio.sleep(60)
    assert await other.get_all(Map.JOBS, 0, [b"k", b"there"]) == {b"there": b"v"}
    assert heard == []


async def test_a_frozen_process_can_be_killed(cluster: MemoryCluster) -> None:
    grid = cluster.connect()
    grid.freeze()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(grid.set, Map.JOBS, 0, b"k", b"v")
        await trio.sleep(1)
        grid.kill()
        nursery.cancel_scope.cancel()
    await trio.sleep(60)
    assert await cluster.connect().get(Map.JOBS, 0, b"k") is None


async def test_the_hook_comes_before_every_return(cluster: MemoryCluster) -> None:
    grid = cluster.connect()
    returns = 0

    async def count() -> None:
        nonlocal returns
        returns += 1

    grid.before_return = count
    await grid.set(Map.JOBS, 0, b"k", b"v")
    await grid.get(Map.JOBS, 0, b"k")
    await grid.get_all(Map.JOBS, 0, [b"k"])
    await grid.put_if_absent(Map.JOBS, 0, b"k", b"v")
    await grid.replace_if_same(Map.JOBS, 0, b"k", b"v", b"v")
    assert returns == 5
    assert [page async for page in grid.scan(Map.JOBS, 0)] == [[(b"k", b"v")]]
    assert returns >= 7
    await grid.delete(Map.JOBS, 0, b"k")
    before_error = returns
    cluster.pause_member(str(cluster.primary(0)))
    with pytest.raises(Unknown):
        await grid.get(Map.JOBS, 0, b"k")
    assert returns == before_error + 1


async def test_a_call_in_flight_may_outlive_its_process() -> None:
    faults = Faults()
    faults.latency_s = (1.0, 1.0)
    faults.instant_share = 0
    cluster = FaultyCluster(faults=faults, partitions=8)
    survived = []
    for number in range(30):
        grid: MemoryGrid = cluster.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(grid.set, Map.JOBS, 0, b"%d" % number, b"v")
            await trio.sleep(0.5)
            grid.kill()
            nursery.cancel_scope.cancel()
        await trio.sleep(25)
        survived.append(await cluster.connect().get(Map.JOBS, 0, b"%d" % number) is not None)
    assert set(survived) == {True, False}
    assert faults.counts[Fault.CONNECTION_KILLED] == 30

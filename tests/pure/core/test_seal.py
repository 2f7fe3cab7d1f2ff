"""Which cluster a client publishes to: what it makes of a marker that it can't see, or that forbids to go on."""

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from tenure.scheduler.allegiance import ABSENT_S, Allegiance
from tenure.scheduler.cluster import MARKER, Cluster, find_or_form
from tenure.scheduler.errors import NotFinished
from tenure.scheduler.grid.memory import Fault, Faults, FaultyCluster
from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.seal import Seal, SealWatch, lift
from tenure.scheduler.settings import CLUSTER_KNOWN_S
from tenure.scheduler.wire import decode

FAULTS = Faults()


@pytest.fixture
async def grid(autojump_clock: MockClock) -> Grid:
    FAULTS.end()
    grid = FaultyCluster(faults=FAULTS, partitions=3).connect()
    await find_or_form(grid, "here")
    return grid


@pytest.fixture
async def allegiance(grid: Grid, nursery: trio.Nursery) -> Allegiance:
    return Allegiance(grid, trio.current_time, nursery)


async def marker_of(grid: Grid) -> Cluster:
    return decode(await grid.get(Map.NODES, 0, MARKER) or b"", Cluster)


async def renewed_unseen(grid: Grid, allegiance: Allegiance) -> bool:
    """Renew it anew, by a read that misses the marker."""
    FAULTS.once(Fault.ABSENT, map=Map.NODES, connection=grid)
    return await allegiance.renew()


async def test_nothing_counts_in_a_sealed_cluster_also_where_the_seal_is_not_seen(
    grid: Grid, allegiance: Allegiance
) -> None:
    assert await allegiance.renew()
    seal = Seal(grid, "mine")
    await seal.put()
    await trio.sleep(CLUSTER_KNOWN_S)
    assert not await renewed_unseen(grid, allegiance)
    assert not await allegiance.renew()
    assert "is being shut down" in allegiance.why_not
    assert (await marker_of(grid)).sealed == "mine"
    await seal.lift()
    assert await allegiance.renew()
    assert allegiance.why_not == ""


async def test_who_comes_anew_does_not_take_it_for_not_formed(grid: Grid, allegiance: Allegiance) -> None:
    await Seal(grid, "mine").put()
    assert not await renewed_unseen(grid, allegiance)
    assert not await allegiance.renew()


async def test_who_has_sealed_it_goes_on(grid: Grid, allegiance: Allegiance) -> None:
    allegiance.seal = "mine"
    assert await allegiance.renew()
    seal = Seal(grid, "mine")
    await seal.put()
    await trio.sleep(CLUSTER_KNOWN_S)
    assert await allegiance.renew()
    await seal.end("snapshot")
    await seal.lift()
    assert (await marker_of(grid)).ended == "snapshot", "for good"


async def test_a_marker_that_is_lost_is_put_back(grid: Grid, allegiance: Allegiance) -> None:
    assert await allegiance.renew()
    marker = await marker_of(grid)
    await grid.delete(Map.NODES, 0, MARKER)
    await trio.sleep(CLUSTER_KNOWN_S)
    assert await allegiance.renew()
    assert await marker_of(grid) == marker


async def test_a_marker_that_nobody_knows_is_waited_for_and_then_done_without(
    grid: Grid, allegiance: Allegiance
) -> None:
    await grid.delete(Map.NODES, 0, MARKER)
    assert not await allegiance.renew()
    await trio.sleep(ABSENT_S)
    assert await allegiance.renew()


async def test_only_the_seal_that_was_put_is_ended_or_lifted(grid: Grid) -> None:
    seal = Seal(grid, "mine")
    await seal.put()
    await lift(grid, "another's")
    assert (await marker_of(grid)).sealed == "mine"
    await lift(grid, "mine")
    await Seal(grid, "another's").put()
    with pytest.raises(NotFinished, match="the seal was taken off meanwhile"):
        await seal.end("snapshot")
    assert (await marker_of(grid)).ended == ""


@pytest.mark.parametrize("fault", [Fault.APPLIED_UNKNOWN, Fault.DROPPED_UNKNOWN])
async def test_a_seal_whose_fate_is_not_known_stands_all_the_same(grid: Grid, fault: Fault) -> None:
    FAULTS.once(fault, map=Map.NODES, connection=grid)
    seal = Seal(grid, "mine")
    await seal.put()
    FAULTS.once(fault, map=Map.NODES, connection=grid)
    await seal.end("snapshot")
    assert (await marker_of(grid)).ended == "snapshot"


def test_a_seal_is_abandoned_when_nobody_has_asked_to_hold_for_long() -> None:
    watch, sealed = SealWatch(), Cluster("here", 1, 3, True, sealed="mine")
    assert not watch.abandoned(sealed, holds=False, now_s=0)
    assert not watch.abandoned(sealed, holds=True, now_s=9)
    assert not watch.abandoned(sealed, holds=False, now_s=11)
    assert not watch.abandoned(replace(sealed, sealed="another's"), holds=False, now_s=19)
    assert not watch.abandoned(replace(sealed, sealed="another's"), holds=False, now_s=28)
    assert watch.abandoned(replace(sealed, sealed="another's"), holds=False, now_s=29)
    assert not watch.abandoned(replace(sealed, sealed="another's", ended="s"), holds=False, now_s=60)

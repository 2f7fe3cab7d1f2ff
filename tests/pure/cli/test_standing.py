"""What is said of members that have no cluster to answer for them, on the memory grid, in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from tenure.cli.standing import Unformed, standing
from tenure.scheduler.cluster import MARKER, Cluster, find_or_form
from tenure.scheduler.grid.memory import Fault, Faults, FaultyCluster
from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.keys import HEAD
from tenure.scheduler.snapshots.claim import Claim
from tenure.scheduler.snapshots.form import Manifest
from tenure.scheduler.wire import Head, encode

FAULTS = Faults()
MANIFEST = Manifest("2026-01-01T00-00-00Z", 1, "f", 1, 3, [], 0, 0, 0, 0.0)


def empty_grid() -> Grid:
    FAULTS.end()
    return FaultyCluster(faults=FAULTS, partitions=3).connect()


@asynccontextmanager
async def restoring(grid: Grid) -> AsyncIterator[Claim]:
    """One who restores, until the block is left: then there is one who was interrupted."""
    claim = Claim(grid, "after", replaces_jobs=True)
    await claim.look()
    await claim.take(MANIFEST, 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(claim.keep)
        yield claim
        nursery.cancel_scope.cancel()


async def said(grid: Grid) -> str:
    found = await standing(grid)
    assert isinstance(found, Unformed)
    return f"{found.finding}. {found.next_step}"


@pytest.mark.parametrize("formed", [False, True])
async def test_a_restore_is_said_while_it_goes_on_and_when_it_was_interrupted(
    autojump_clock: trio.testing.MockClock, formed: bool
) -> None:
    grid = empty_grid()
    if formed:
        await find_or_form(grid, "before")
    async with restoring(grid):
        told = await said(grid)
        assert f"snapshot {MANIFEST.name} is being restored here. Wait for the end" in told
    told = await said(grid)
    assert f"snapshot {MANIFEST.name} was being restored here, and nobody has gone on with that for 10 s" in told
    assert "Run `tenure restore` again" in told


async def test_a_restore_that_ends_meanwhile_is_no_hindrance(autojump_clock: trio.testing.MockClock) -> None:
    grid = empty_grid()
    async with restoring(grid) as claim, trio.open_nursery() as nursery:

        async def end() -> None:
            await trio.sleep(0.3)
            await grid.set(Map.HEADS, 0, HEAD, encode(Head("after", 2)))
            await claim.end()

        nursery.start_soon(end)
        found = await standing(grid)
        assert isinstance(found, Cluster)
        assert (found.formed, found.formation) == (True, "after")


async def test_a_cluster_of_which_only_the_marker_is_there_is_lost(autojump_clock: trio.testing.MockClock) -> None:
    grid = empty_grid()
    cluster = await find_or_form(grid, "there")
    for partition in range(grid.partition_count):
        assert await standing(grid) == cluster
        await grid.delete(Map.HEADS, partition, HEAD)
    told = await said(grid)
    assert "members of cluster there have come back empty" in told
    assert "tenure restore" in told


@pytest.mark.parametrize("fault", [Fault.ABSENT, Fault.STALE])
async def test_what_a_member_that_fails_does_not_show_is_looked_for_again(
    autojump_clock: trio.testing.MockClock, fault: Fault
) -> None:
    grid = empty_grid()
    cluster = await find_or_form(grid, "there")
    for _ in range(3):
        FAULTS.once(fault, map=Map.NODES, connection=grid)
    assert await standing(grid) == cluster
    assert FAULTS.counts[fault] > 0


async def test_there_is_nothing_only_where_nothing_is_ever_found(autojump_clock: trio.testing.MockClock) -> None:
    grid = empty_grid()
    began_s = trio.current_time()
    assert await said(grid) == "no node has run here yet. Start one with `tenure node APP`."
    assert trio.current_time() - began_s < 5
    await grid.set(Map.NODES, 0, MARKER, encode(Cluster("begun", 1, 3, False)))
    assert "a node is forming a cluster here" in await said(grid)
    FAULTS.once(Fault.READ_FAILED, map=Map.NODES, connection=grid)
    with pytest.raises(GridError):
        await standing(grid)

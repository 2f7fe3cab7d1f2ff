"""A node notices when the grid is no longer the cluster that it joined; on the memory grid, in virtual time."""

from typing import Any

import pytest
import trio
from msgspec.structs import replace

from tenure.nodes.errors import ClusterLost, ClusterReplaced, GridGone
from tenure.nodes.guard import guard, join_cluster
from tenure.scheduler.cluster import MARKER, Cluster, find, find_or_form
from tenure.scheduler.fences import first_incarnation
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Grid, GridError, Map, Unknown
from tenure.scheduler.keys import HEAD
from tenure.scheduler.wire import encode

PARTITIONS = 4


def empty_grid() -> Grid:
    return MemoryCluster(partitions=PARTITIONS, members=1, backups=0).connect()


async def test_a_cluster_is_formed_once_and_then_joined(autojump_clock: trio.testing.MockClock) -> None:
    grid = empty_grid()
    first, formed = await join_cluster(grid)
    assert formed
    assert await join_cluster(grid) == (first, False)


async def test_a_cluster_that_is_well_is_left_alone(autojump_clock: trio.testing.MockClock) -> None:
    grid = empty_grid()
    cluster, _ = await join_cluster(grid)
    with trio.move_on_after(600) as waiting:
        await guard(grid, cluster, gone_after_s=10)
    assert waiting.cancelled_caught


async def test_a_grid_that_came_back_empty_is_not_taken_for_a_new_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    before, after = empty_grid(), empty_grid()
    cluster, _ = await join_cluster(before)
    with pytest.raises(ClusterLost, match="--begin-anew"):
        await guard(after, cluster, gone_after_s=10)
    # The next node that starts finds what the first has left behind.
    with pytest.raises(ClusterLost, match=cluster.formation):
        await join_cluster(after)


class Flaky:
    """A grid whose reads of heads fail for a while."""

    def __init__(self, grid: Grid, failures: int) -> None:
        self._grid, self.failures = grid, failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    async def get(self, map: Map, *arguments: Any, **options: Any) -> bytes | None:
        if map is Map.HEADS and self.failures:
            self.failures -= 1
            raise Unknown("a member is on its way out")
        return await self._grid.get(map, *arguments, **options)


async def test_each_node_that_was_there_before_notices_that_all_is_lost(autojump_clock: trio.testing.MockClock) -> None:
    before, after = empty_grid(), empty_grid()
    cluster, _ = await join_cluster(before)
    flaky: Any = Flaky(after, failures=3)
    noticed = []

    async def watch(grid: Grid, after_s: float) -> None:
        await trio.sleep(after_s)
        with pytest.raises(ClusterLost, match=cluster.formation):
            await guard(grid, cluster, gone_after_s=10)
        noticed.append(grid)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, flaky, 0)  # puts the marker back, and can't tell at once what that means
            nursery.start_soon(watch, after, 0.05)  # finds it there
    assert len(noticed) == 2
    assert not flaky.failures


@pytest.mark.parametrize("begin_anew_if_lost", [False, True])
async def test_what_can_not_be_read_at_the_start_is_said(
    begin_anew_if_lost: bool, autojump_clock: trio.testing.MockClock
) -> None:
    grid = empty_grid()
    await join_cluster(grid)
    flaky: Any = Flaky(grid, failures=1)
    with pytest.raises(GridGone, match=r"a member is on its way out.*`tenure doctor`") as caught:
        await join_cluster(flaky, begin_anew_if_lost=begin_anew_if_lost)
    assert isinstance(caught.value.__cause__, GridError)


async def test_to_begin_anew_takes_a_word(autojump_clock: trio.testing.MockClock) -> None:
    grid = empty_grid()
    lost = Cluster("lost", 3, PARTITIONS, True)
    await grid.set(Map.NODES, 0, MARKER, encode(lost))
    anew, _ = await join_cluster(grid, begin_anew_if_lost=True)
    assert anew.formation != "lost"
    assert anew.incarnation == 4, "what was lost must not be taken for what comes"
    assert await find(grid) == anew
    again, _ = await join_cluster(grid, begin_anew_if_lost=True)
    assert again == anew, "a cluster that has its data is never begun anew"


@pytest.mark.parametrize("goes_on", [True, False])
async def test_what_somebody_restores_is_not_begun_anew(goes_on: bool, autojump_clock: trio.testing.MockClock) -> None:
    """It has no heads yet. Where nobody goes on with it any more, a word is enough."""
    grid = empty_grid()
    restoring = Cluster("restored", 5, PARTITIONS, False, restoring="snapshot", restored="snapshot")
    await grid.set(Map.NODES, 0, MARKER, encode(restoring))

    async def restore() -> None:
        for beat in range(20):
            await trio.sleep(1)
            here = replace(restoring, beat=beat)
            if not await grid.replace_if_same(Map.NODES, 0, MARKER, encode(here), encode(replace(here, beat=beat + 1))):
                return
        await grid.set(Map.HEADS, 1, HEAD, b"any")
        await grid.set(Map.NODES, 0, MARKER, encode(replace(restoring, formed=True, restoring="")))

    async with trio.open_nursery() as nursery:
        if goes_on:
            nursery.start_soon(restore)
        joined, _ = await join_cluster(grid, known=KNOWN, begin_anew_if_lost=True)
        nursery.cancel_scope.cancel()
    assert (joined.formation == "restored") is goes_on
    assert joined.anew is not goes_on


async def test_tokens_grow_also_where_what_is_begun_anew_was_put_back_by_one_who_knew_less(
    autojump_clock: trio.testing.MockClock,
) -> None:
    grid = empty_grid()
    await grid.set(Map.NODES, 0, MARKER, encode(Cluster("long ago", 1, PARTITIONS, True)))
    anew, _ = await join_cluster(grid, known=KNOWN, begin_anew_if_lost=True)
    assert anew.incarnation > KNOWN.incarnation
    grid = empty_grid()
    await grid.set(Map.NODES, 0, MARKER, encode(Cluster("long ago", 1, PARTITIONS, True)))
    now_ms = 1_790_000_000_000
    anew, _ = await join_cluster(grid, begin_anew_if_lost=True, now_ms=now_ms)
    assert anew.incarnation == first_incarnation(now_ms), "as of any new cluster"


async def test_a_marker_that_was_lost_alone_is_put_back(autojump_clock: trio.testing.MockClock) -> None:
    grid = empty_grid()
    cluster, _ = await join_cluster(grid)
    await grid.delete(Map.NODES, 0, MARKER)
    for partition in range(PARTITIONS - 1):
        await grid.delete(Map.HEADS, partition, HEAD)
    with trio.move_on_after(60) as waiting:
        await guard(grid, cluster, gone_after_s=10)
    assert waiting.cancelled_caught, "one partition is still there: the others are reported by their tenures"
    assert await find(grid) == cluster


async def test_another_cluster_in_its_place(autojump_clock: trio.testing.MockClock) -> None:
    grid = empty_grid()
    await find_or_form(grid, "theirs")
    with pytest.raises(ClusterReplaced, match="theirs"):
        await guard(grid, Cluster("mine", 1, PARTITIONS, True), gone_after_s=10)


class Silent:
    """A grid none of whose members answers for a while."""

    def __init__(self, grid: Grid, from_s: float, until_s: float) -> None:
        self._grid, self._from_s, self._until_s = grid, from_s, until_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    async def get(self, *arguments: Any, **options: Any) -> bytes | None:
        if self._from_s <= trio.current_time() < self._until_s:
            raise Unknown("nobody answers")
        return await self._grid.get(*arguments, **options)


@pytest.mark.parametrize(("silence_s", "gives_up"), [(8, False), (1000, True)])
async def test_silence_is_borne_for_a_while(
    silence_s: float, gives_up: bool, autojump_clock: trio.testing.MockClock
) -> None:
    grid = empty_grid()
    cluster, _ = await join_cluster(grid)
    began_s = trio.current_time()
    silent: Any = Silent(grid, began_s + 5, began_s + 5 + silence_s)
    with trio.move_on_after(100) as waiting:
        if gives_up:
            with pytest.raises(GridGone, match="10 s"):
                await guard(silent, cluster, gone_after_s=10)
            assert 14 <= trio.current_time() - began_s <= 20
        else:
            await guard(silent, cluster, gone_after_s=10)
    assert waiting.cancelled_caught is not gives_up


# -- after everything was restarted ---------------------------------------------------------------


KNOWN = Cluster("before", 3, PARTITIONS, True)


async def test_a_node_that_knew_a_cluster_forms_no_other(autojump_clock: trio.testing.MockClock) -> None:
    """Nor does one that starts after it, and knows of nothing: it finds what the first has put back."""
    grid = empty_grid()
    with pytest.raises(ClusterLost, match=r"before.*tenure restore URL.*--begin-anew"):
        await join_cluster(grid, known=KNOWN)
    with pytest.raises(ClusterLost, match="before"):
        await join_cluster(grid)
    assert await find(grid) == KNOWN
    for partition in range(PARTITIONS):
        assert await grid.get(Map.HEADS, partition, HEAD) is None


async def test_a_node_that_knew_a_cluster_joins_no_other_that_nobody_wanted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    grid = empty_grid()
    other, _ = await join_cluster(grid)  # by a node that knew of nothing
    with pytest.raises(
        ClusterReplaced, match=rf"before.*{other.formation}.*tenure restore URL --replace.*--begin-anew"
    ):
        await join_cluster(grid, known=KNOWN)
    assert await join_cluster(grid, known=KNOWN, begin_anew_if_lost=True) == (other, False)


async def test_an_empty_cluster_on_purpose_is_joined_by_all(autojump_clock: trio.testing.MockClock) -> None:
    for has_marker in (False, True):
        grid = empty_grid()
        if has_marker:
            with pytest.raises(ClusterLost):
                await join_cluster(grid, known=KNOWN)
        anew, _ = await join_cluster(grid, known=KNOWN, begin_anew_if_lost=True)
        assert (anew.anew, anew.incarnation) == (True, KNOWN.incarnation + 1), "fences go on"
        assert await join_cluster(grid, known=KNOWN) == (anew, False)


async def test_what_was_restored_is_joined(autojump_clock: trio.testing.MockClock) -> None:
    grid = empty_grid()
    restored = Cluster("after", 1, PARTITIONS, True, restored="snapshot")
    await grid.set(Map.NODES, 0, MARKER, encode(restored))
    await grid.set(Map.HEADS, 1, HEAD, b"any")
    assert await join_cluster(grid, known=KNOWN) == (restored, False)


async def test_a_known_cluster_that_has_lost_its_marker_alone_is_joined(autojump_clock: trio.testing.MockClock) -> None:
    grid = empty_grid()
    cluster, _ = await join_cluster(grid)
    await grid.delete(Map.NODES, 0, MARKER)
    joined, _ = await join_cluster(grid, known=cluster)
    assert joined.formation == cluster.formation


async def test_what_becomes_of_it_by_a_restore_is_told(autojump_clock: trio.testing.MockClock) -> None:
    grid = empty_grid()
    cluster, _ = await join_cluster(grid)
    after = Cluster("after", 2, PARTITIONS, True, restored="snapshot", replaces=cluster.formation)
    await grid.set(Map.NODES, 0, MARKER, encode(after))
    told: list[Cluster] = []
    with trio.move_on_after(60):
        await guard(grid, cluster, gone_after_s=10, on_another=told.append)
    assert told == [after]

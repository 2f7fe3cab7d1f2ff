"""What an upgrade keeps of itself in the grid, and which nodes it means. (Real ones: tests/upgrade.)"""


import pytest
import trio

import tenure
from tenure.clients import upgrading
from tenure.clients.upgrading import plan_upgrade
from tenure.scheduler.grid.memory import Fault, Faults, FaultyCluster, MemoryCluster
from tenure.scheduler.grid.port import Grid, GridError
from tenure.scheduler.upgrade_plan import STANDS_STILL_S, OwnPlan, UpgradePlan, freed, read_plan
from tenure.testing import Cluster

NOW_MS = 1_000_000


def plan(by: str, left: list[str], touched_ms: int = NOW_MS) -> UpgradePlan:
    return UpgradePlan(by=by, command="tenure node app.py", left=left, at_ms=NOW_MS, touched_ms=touched_ms)


async def test_one_upgrade_at_a_time_and_one_that_was_let_go_is_taken_over() -> None:
    grid = MemoryCluster(partitions=3, members=1).connect()
    mine, other = plan("me", ["a", "b", "c"]), plan("other", ["a"])
    mines, others = OwnPlan(grid), OwnPlan(grid)
    await mines.keep(mine)
    with pytest.raises(tenure.UpgradeUnderWay, match="by me, 3 nodes are left"):
        await others.keep(other)
    mine = mine.with_replaced(["a", "b"], ["x"], NOW_MS + 5)
    await mines.keep(mine)
    kept = await read_plan(grid)
    assert kept is not None
    assert (kept.replaced, kept.left, kept.touched_ms) == ({"a": "x", "b": ""}, ["c"], NOW_MS + 5)
    await mines.keep(mine.touched(0))
    await others.keep(other)
    with pytest.raises(tenure.UpgradeUnderWay, match="another command has gone on with it"):
        await mines.keep(mine)
    await others.forget(other)
    assert await read_plan(grid) is None
    grid.close()


async def test_one_that_was_suspended_does_not_go_on_after_another_has_ended_it() -> None:
    """Its plan is absent then, as it is before any upgrade."""
    grid = MemoryCluster(partitions=3, members=1).connect()
    suspended, other = OwnPlan(grid), OwnPlan(grid)
    await suspended.keep(plan("suspended", ["a", "b"]))
    await suspended.keep(plan("suspended", ["a", "b"], 0))  # as who has watched it stand still does
    await other.keep(plan("other", ["a", "b"]))
    await other.forget(plan("other", []))
    with pytest.raises(tenure.UpgradeUnderWay, match="stood still for long"):
        await suspended.keep(plan("suspended", ["a", "b"], NOW_MS + 100_000))
    assert await read_plan(grid) is None
    grid.close()


@pytest.mark.parametrize("fault", [Fault.APPLIED_UNKNOWN, Fault.DROPPED_UNKNOWN])
async def test_a_step_whose_outcome_is_not_known_is_ones_own(fault: Fault) -> None:
    """Whether it got through or not, the next one goes on from it."""
    faults = Faults()
    grid = FaultyCluster(faults=faults, partitions=3, members=1).connect()
    own = OwnPlan(grid)
    for n, left in enumerate((["a", "b"], ["b"], [])):
        faults.once(fault)
        with pytest.raises(GridError):
            await own.keep(plan("me", left, NOW_MS + n))
        await own.keep(plan("me", left, NOW_MS + n + 10))
        kept = await read_plan(grid)
        assert kept is not None
        assert (kept.left, kept.touched_ms) == (left, NOW_MS + n + 10)
    grid.close()


class Waited:
    """What was told, and since when."""

    def __init__(self) -> None:
        self.began_s = trio.current_time()
        self.told: list[str] = []

    def now_ms(self) -> int:
        return NOW_MS + round((trio.current_time() - self.began_s) * 1000)

    async def until_freed(self, grid: Grid) -> float:
        """How long that took."""
        before_s = trio.current_time()
        await freed(grid, lambda plan: self.told.append(plan.by))
        return trio.current_time() - before_s


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000, -25_000, -3_600_000])
async def test_one_that_was_killed_is_waited_for_and_gone_on_with(in_virtual_time: None, ahead_ms: int) -> None:
    """By no clock: also if it was killed this very moment, or long ago, or by a clock that is ahead."""
    grid, waited = MemoryCluster(partitions=3, members=1).connect(), Waited()
    assert await waited.until_freed(grid) == 0
    await OwnPlan(grid).keep(plan("killed", ["a"], NOW_MS + ahead_ms))
    assert STANDS_STILL_S <= await waited.until_freed(grid) < STANDS_STILL_S + 1
    assert waited.told == ["killed"]
    kept = await read_plan(grid)
    assert kept is not None
    assert kept.left == ["a"]
    await OwnPlan(grid).keep(plan("me", ["a"]))
    grid.close()


@pytest.mark.parametrize("behind_ms", [0, 25_000])
async def test_one_that_lives_is_told_as_soon_as_it_is_seen_to(in_virtual_time: None, behind_ms: int) -> None:
    """Also where its clock says that it has been still for long."""
    grid, waited = MemoryCluster(partitions=3, members=1).connect(), Waited()
    other, others = plan("other", ["a", "b"], NOW_MS - behind_ms), OwnPlan(grid)
    await others.keep(other)

    async def go_on() -> None:
        while True:
            await trio.sleep(5)
            await others.keep(other.touched(waited.now_ms() - behind_ms))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on)
        with pytest.raises(tenure.UpgradeUnderWay, match="by other, 2 nodes are left"):
            await waited.until_freed(grid)
        assert 5 <= trio.current_time() - waited.began_s <= 6
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others.keep, other.touched(0))  # it stops, and lets go
        assert await waited.until_freed(grid) < 1
    async with trio.open_nursery() as nursery:
        await others.keep(other.touched(waited.now_ms()))
        nursery.start_soon(others.forget, other)  # it is done
        assert await waited.until_freed(grid) < 1.1
    grid.close()


@pytest.mark.tenure(nodes=1)
async def test_an_upgrade_goes_on_with_one_whose_process_was_killed(
    cluster: Cluster, client: tenure.Client, monkeypatch: pytest.MonkeyPatch, in_virtual_time: None
) -> None:
    """It begins when that is known, with what is left by then: here, nothing."""
    waited, core = Waited(), client._home._value
    monkeypatch.setattr(upgrading, "_now_ms", waited.now_ms)
    await OwnPlan(core.grid).keep(plan("killed", ["node-9"]))
    assert await client.upgrade("tenure node app.py", on_step=waited.told.append) == {"node-9": ""}
    assert trio.current_time() - waited.began_s >= STANDS_STILL_S
    assert waited.told[0] == "killed was at an upgrade a moment ago: waiting to see whether it still is"
    assert await read_plan(core.grid) is None


@pytest.mark.tenure(nodes=3)
async def test_which_nodes_are_meant(cluster: Cluster, client: tenure.Client) -> None:
    core = client._home._value
    everyone = ["node-0", "node-1", "node-2"]
    assert await plan_upgrade(core, None) == everyone
    assert await plan_upgrade(core, ["node-2", "node-0", "node-2"]) == ["node-2", "node-0"]
    with pytest.raises(tenure.UnknownNode, match="no living node is called 'node-7'; there are node-0, node-1, node-2"):
        await plan_upgrade(core, ["node-7"])
    # One that was stopped goes on with those that are left, and live.
    await OwnPlan(core.grid).keep(plan("me", ["node-1", "node-9"]))
    assert await plan_upgrade(core, None) == ["node-1"]
    status = await client.upgrade_status()
    assert (status["under_way"], status["left"], status["declared"]) == (True, ["node-1", "node-9"], 1)
    assert [node["id"] for node in status["nodes"] if node["left"]] == ["node-1"]
    with pytest.raises(tenure.Mistake, match="this cluster lives in one process"):
        await client.upgrade("tenure node app.py")
    with pytest.raises(tenure.Mistake, match="at least one"):
        await client.upgrade("tenure node app.py", at_once=0)
    assert await client.finalize() == 1

"""What an upgrade keeps of itself in the grid, and which nodes it means. (Real ones: tests/upgrade.)"""

import pytest
import trio

import tenure
from tenure.clients import upgrading
from tenure.clients.upgrading import plan_upgrade
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Grid
from tenure.scheduler.upgrade_plan import TOUCHED_WITHIN_MS, UpgradePlan, forget_plan, freed, keep_plan, read_plan
from tenure.testing import Cluster

NOW_MS = 1_000_000


def plan(by: str, left: list[str], touched_ms: int = NOW_MS) -> UpgradePlan:
    return UpgradePlan(by=by, command="tenure node app.py", left=left, at_ms=NOW_MS, touched_ms=touched_ms)


async def test_one_upgrade_at_a_time_and_one_that_was_left_behind_is_taken_over(in_virtual_time: None) -> None:
    grid = MemoryCluster(partitions=3, members=1).connect()
    mine, other = plan("me", ["a", "b", "c"]), plan("other", ["a"])
    await keep_plan(grid, mine, NOW_MS)
    with pytest.raises(tenure.UpgradeUnderWay, match="by me, 3 nodes are left"):
        await keep_plan(grid, other, NOW_MS + TOUCHED_WITHIN_MS - 1)
    mine = mine.with_replaced(["a", "b"], ["x"], NOW_MS + 5)
    await keep_plan(grid, mine, NOW_MS + 5)
    kept = await read_plan(grid)
    assert kept is not None
    assert (kept.replaced, kept.left, kept.touched_ms) == ({"a": "x", "b": ""}, ["c"], NOW_MS + 5)
    await keep_plan(grid, other, NOW_MS + 5 + TOUCHED_WITHIN_MS)
    await keep_plan(grid, other.touched(0), 0)  # it lets go of it
    await keep_plan(grid, mine, NOW_MS)
    await forget_plan(grid)
    assert await read_plan(grid) is None
    grid.close()


class Waited:
    """A clock that goes on with trio's, and what was told."""

    def __init__(self) -> None:
        self.began_s = trio.current_time()
        self.told: list[str] = []

    def now_ms(self) -> int:
        return NOW_MS + round((trio.current_time() - self.began_s) * 1000)

    async def until_freed(self, grid: Grid) -> float:
        """How long that took."""
        before_s = trio.current_time()
        await freed(grid, self.now_ms, lambda plan: self.told.append(plan.by))
        return trio.current_time() - before_s


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000])
async def test_one_that_was_killed_is_waited_for_and_gone_on_with(in_virtual_time: None, ahead_ms: int) -> None:
    """Also if it was killed this very moment, or by a clock that is ahead."""
    grid, waited = MemoryCluster(partitions=3, members=1).connect(), Waited()
    assert await waited.until_freed(grid) == 0
    await keep_plan(grid, plan("killed", ["a"], NOW_MS + ahead_ms), NOW_MS)
    assert TOUCHED_WITHIN_MS / 1000 <= await waited.until_freed(grid) < TOUCHED_WITHIN_MS / 1000 + 1
    assert waited.told == ["killed"]
    kept = await read_plan(grid)
    assert kept is not None
    assert kept.left == ["a"]
    await keep_plan(grid, plan("me", ["a"]), waited.now_ms())
    grid.close()


async def test_one_that_lives_is_told_as_soon_as_it_is_seen_to(in_virtual_time: None) -> None:
    grid, waited = MemoryCluster(partitions=3, members=1).connect(), Waited()
    other = plan("other", ["a", "b"])
    await keep_plan(grid, other, NOW_MS)

    async def go_on() -> None:
        while True:
            await trio.sleep(5)
            await keep_plan(grid, other.touched(waited.now_ms()), waited.now_ms())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on)
        with pytest.raises(tenure.UpgradeUnderWay, match="by other, 2 nodes are left"):
            await waited.until_freed(grid)
        assert 5 <= trio.current_time() - waited.began_s <= 6
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_plan, grid, other.touched(0), NOW_MS)  # it stops, and lets go
        assert await waited.until_freed(grid) < 1
    async with trio.open_nursery() as nursery:
        await keep_plan(grid, other.touched(waited.now_ms()), waited.now_ms())
        nursery.start_soon(forget_plan, grid)  # it is done
        assert await waited.until_freed(grid) < 1
    grid.close()


@pytest.mark.tenure(nodes=1)
async def test_an_upgrade_goes_on_with_one_whose_process_was_killed(
    cluster: Cluster, client: tenure.Client, monkeypatch: pytest.MonkeyPatch, in_virtual_time: None
) -> None:
    """It begins when that is known, with what is left by then: here, nothing."""
    waited, core = Waited(), client._home._value
    monkeypatch.setattr(upgrading, "_now_ms", waited.now_ms)
    await keep_plan(core.grid, plan("killed", ["node-9"]), NOW_MS)
    assert await client.upgrade("tenure node app.py", on_step=waited.told.append) == {"node-9": ""}
    assert trio.current_time() - waited.began_s >= TOUCHED_WITHIN_MS / 1000
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
    await keep_plan(core.grid, plan("me", ["node-1", "node-9"]), NOW_MS)
    assert await plan_upgrade(core, None) == ["node-1"]
    status = await client.upgrade_status()
    assert (status["under_way"], status["left"], status["declared"]) == (True, ["node-1", "node-9"], 1)
    assert [node["id"] for node in status["nodes"] if node["left"]] == ["node-1"]
    with pytest.raises(tenure.Mistake, match="this cluster lives in one process"):
        await client.upgrade("tenure node app.py")
    with pytest.raises(tenure.Mistake, match="at least one"):
        await client.upgrade("tenure node app.py", at_once=0)
    assert await client.finalize() == 1

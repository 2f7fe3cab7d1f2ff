"""What an upgrade keeps of itself in the grid, and which nodes it means. (Real ones: tests/upgrade.)"""

import pytest

import tenure
from tenure.clients.upgrading import plan_upgrade
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.upgrade_plan import TOUCHED_WITHIN_MS, UpgradePlan, forget_plan, keep_plan, read_plan
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

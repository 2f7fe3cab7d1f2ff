"""Those who wait for nodes to go wait for as long as members answer, and for a failover."""

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tenure.clients.scaling import left, tell
from tenure.scheduler.assignment import NODE_PREFIX, NodeInfo
from tenure.scheduler.errors import NotDone
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Grid, Map, Unknown
from tenure.scheduler.nodes_seen import PATIENCE_S, live_nodes, patiently, said_nodes
from tenure.scheduler.orders import Order
from tenure.scheduler.wire import encode


class Members:
    """They answer nothing for a time."""

    def __init__(self, silent_s: float) -> None:
        self.grid, self.answers_s = MemoryCluster(partitions=1).connect(), trio.current_time() + silent_s

    def __getattr__(self, name: str) -> Any:
        if trio.current_time() < self.answers_s:
            raise Unknown("no answer")
        return getattr(self.grid, name)


async def tell_it(grid: Grid) -> None:
    await tell(grid, "n", Order(leave=True))


async def left_by_it(grid: Grid) -> None:
    await left(grid, "n")


async def seen(grid: Grid) -> None:
    await patiently(said_nodes, grid)


@pytest.mark.parametrize("act", [tell_it, left_by_it, seen])
@pytest.mark.parametrize("silent_s", [PATIENCE_S - 1, PATIENCE_S + 1])
async def test_members_that_fail_over_are_waited_for_and_those_that_are_gone_are_not(
    act: Callable[[Any], Awaitable[None]], silent_s: float
) -> None:
    members = Members(silent_s)
    with trio.fail_after(2 * PATIENCE_S):
        if silent_s < PATIENCE_S:
            await act(members)
            return
        with pytest.raises(NotDone, match="members have not answered for 30 s"):
            await act(members)


class Late:
    """A node whose heart stands still for a while, and beats on: its machine had too much to do."""

    def __init__(self, id: str, told_s: float = 0.0) -> None:
        self.id, self.told_s, self.beat = id, told_s, 0

    async def run(self, grid: Grid, rests_s: list[float]) -> None:
        for rest_s in rests_s:
            self.beat += 1
            info = NodeInfo(self.id, self.beat, heartbeat_s=0.2, late_s=self.told_s)
            await grid.set(Map.NODES, 0, NODE_PREFIX + self.id.encode(), encode(info))
            await trio.sleep(rest_s)


@pytest.mark.parametrize(
    ("told_s", "stands_still_s", "lives"),
    [(0, 0.2, True), (0, 1.1, True), (0, 1.6, False), (1, 2.5, True), (1, 4, False), (math.nan, 1.1, True)],
)
async def test_a_node_is_silent_for_commands_no_sooner_than_for_other_nodes(
    told_s: float, stands_still_s: float, lives: bool, nursery: trio.Nursery
) -> None:
    grid = MemoryCluster(partitions=1).connect()
    nursery.start_soon(Late("calm").run, grid, [0.2] * 100)
    nursery.start_soon(Late("late", told_s).run, grid, [1, stands_still_s] + [0.2] * 100)
    await trio.sleep(1.01)
    began_s = trio.current_time()
    assert [node.id for node in await live_nodes(grid)] == (["calm", "late"] if lives else ["calm"])
    assert trio.current_time() - began_s < 1.2 + 2 * (told_s if told_s > 0 else 0) + 0.4


async def test_one_that_beats_is_seen_at_once(nursery: trio.Nursery) -> None:
    grid = MemoryCluster(partitions=1).connect()
    assert await live_nodes(grid) == []
    nursery.start_soon(Late("calm", told_s=1e9).run, grid, [0.2] * 100)
    await trio.sleep(1.01)
    began_s = trio.current_time()
    assert [node.id for node in await live_nodes(grid)] == ["calm"]
    assert trio.current_time() - began_s < 0.5


async def test_a_node_that_stays_is_waited_for_as_long_as_it_takes() -> None:
    grid = MemoryCluster(partitions=1).connect()
    await grid.set(Map.NODES, 0, NODE_PREFIX + b"n", b"")
    with trio.move_on_after(10 * PATIENCE_S) as waiting:
        await left(grid, "n")
    assert waiting.cancelled_caught

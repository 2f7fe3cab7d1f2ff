"""Those who wait for nodes to go wait for as long as members answer, and for a failover."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tenure.clients.scaling import left, tell
from tenure.scheduler.assignment import NODE_PREFIX
from tenure.scheduler.errors import NotDone
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Grid, Map, Unknown
from tenure.scheduler.nodes_seen import PATIENCE_S, patiently, said_nodes
from tenure.scheduler.orders import Order


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


async def test_a_node_that_stays_is_waited_for_as_long_as_it_takes() -> None:
    grid = MemoryCluster(partitions=1).connect()
    await grid.set(Map.NODES, 0, NODE_PREFIX + b"n", b"")
    with trio.move_on_after(10 * PATIENCE_S) as waiting:
        await left(grid, "n")
    assert waiting.cancelled_caught

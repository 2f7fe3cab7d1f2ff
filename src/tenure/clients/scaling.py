"""Nodes that are to come and to go, on the core of a client: the one place for `Client`, `SyncClient` and commands.

A node comes by being started, and goes by being told to (or by SIGTERM): here that is done for the caller, who gets an
answer when the cluster has settled.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import trio

from tenure.clients.views import NodeStatus, ScaleStatus
from tenure.jobs.spawning import Spawned, run_hook, spawned_by, split
from tenure.scheduler.assignment import ASSIGNMENT, NODE_PREFIX, Assignment, NodeInfo, is_settled
from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import Mistake, NotDone, NotSpawned, UnknownNode
from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.nodes_seen import live_nodes, patiently, said_nodes
from tenure.scheduler.orders import Order, give_order
from tenure.scheduler.wire import decode

__all__ = [
    "add_nodes",
    "address_of",
    "left",
    "named",
    "remove_node",
    "scale",
    "scale_to",
    "settled",
    "tell",
]

DEADLINE_S = 120.0
POLL_S = 0.1
ABSENT_READS = 3
"""A heartbeat that reads absent so often is gone: a member that fails may hide it for a moment."""


async def scale(client: GridClient) -> ScaleStatus:
    nodes = await patiently(live_nodes, client.grid)
    members = {member.id: member.address for member in client.grid.ownership().members}
    rows = [_status(node, members) for node in nodes]
    busy = sum(row["busy"] for row in rows) / len(rows) if rows else 0.0
    return {"members": len(members), "nodes": rows, "waiting": sum(row["waiting"] for row in rows), "busy": busy}


def _status(node: NodeInfo, members: dict[str, str]) -> NodeStatus:
    return {
        "id": node.id,
        "name": node.name,
        "pid": node.pid,
        "member": members.get(node.member, ""),
        "draining": node.draining,
        "partitions": len(node.owned),
        "waiting": node.load.waiting,
        "busy": node.load.busy,
    }


# -- going ----------------------------------------------------------------------------------------


async def remove_node(client: GridClient, node: str, timeout_s: float | None) -> str:
    staying = [info for info in await patiently(live_nodes, client.grid) if not info.draining]
    leaving = await named(client.grid, node)
    if [info.id for info in staying] == [leaving.id]:
        raise Mistake(
            f"{leaving.id} is the last node: without it no job runs. Start another one first, or end it with SIGTERM"
        )
    deadline_s = DEADLINE_S if timeout_s is None else timeout_s
    with trio.move_on_after(deadline_s):
        await tell(client.grid, leaving.id, Order(leave=True))
        await left(client.grid, leaving.id)
        return leaving.id
    raise NotDone(f"{leaving.id} has not left within {deadline_s:g} s; it has been told to, and does so when it can")


async def named(grid: Grid, node: str) -> NodeInfo:
    """The node of this id or name; raises `UnknownNode`."""
    said = await patiently(said_nodes, grid)  # one that is silent for a while, too: it may only be frozen
    found = [info for info in said if node in (info.id, info.name)]
    if not found:
        known = ", ".join(sorted(info.id for info in said)) or "none"
        raise UnknownNode(f"no node is called {node!r}; there are {known}")
    if len(found) > 1:
        raise Mistake(f"{len(found)} nodes are called {node!r}: say which of {', '.join(info.id for info in found)}")
    return found[0]


async def tell(grid: Grid, id: str, order: Order) -> None:
    """Give a node an order; returns when it is stored."""
    while True:
        try:
            return await give_order(grid, id, order)
        except GridError:
            await trio.sleep(POLL_S)


async def left(grid: Grid, id: str) -> None:
    """Until a node has taken its leave."""
    absent = 0
    while absent < ABSENT_READS:
        try:
            absent = 0 if await grid.get(Map.NODES, 0, NODE_PREFIX + id.encode()) is not None else absent + 1
        except GridError:
            absent = 0
        await trio.sleep(POLL_S)


# -- coming ---------------------------------------------------------------------------------------


async def add_nodes(
    client: GridClient,
    count: int,
    spawn: str | Sequence[str],
    log_folder: str | PathLike[str] | None,
    timeout_s: float | None,
) -> list[str]:
    if count < 1:
        raise Mistake(f"a number of nodes to add is positive, not {count}")
    folder = None if log_folder is None else Path(log_folder)
    before = {info.id for info in await patiently(said_nodes, client.grid)}  # one that is silent may come back
    spawned = [await spawned_by(split(spawn), address_of(client.grid), folder) for _ in range(count)]
    deadline_s = DEADLINE_S if timeout_s is None else timeout_s
    with trio.move_on_after(deadline_s):
        while True:
            ready = [id for id in await settled(client.grid) if id not in before]
            if len(ready) >= count:
                return ready
            _check(spawned)
            await trio.sleep(POLL_S)
    raise NotDone(
        f"not all of {count} nodes serve their share after {deadline_s:g} s; they go on. "
        f"Their logs: {', '.join(str(one.log_file) for one in spawned)}"
    )


def address_of(grid: Grid) -> str:
    """The cluster as nodes elsewhere find it."""
    if not grid.address:
        raise Mistake("this cluster lives in one process: nodes of other processes can't reach it")
    return grid.address


def _check(spawned: list[Spawned]) -> None:
    for one in spawned:
        if (code := one.ended()) is not None and code != 0:
            raise NotSpawned(f"{' '.join(one.command)} has ended with exit code {code}: {one.last_words()}")


async def settled(grid: Grid) -> list[str]:
    """The nodes that serve their shares; none, while that can't be read."""
    try:
        nodes = await live_nodes(grid)
        stored = await grid.get(Map.NODES, 0, ASSIGNMENT)
    except GridError:
        return []
    if stored is None:
        return []
    published, ownership = decode(stored, Assignment), grid.ownership()
    return [node.id for node in nodes if not node.draining and is_settled(node, published, ownership, nodes)]


# -- to a number ----------------------------------------------------------------------------------


async def scale_to(
    client: GridClient,
    count: int,
    spawn: str | Sequence[str] | None,
    run: str | Sequence[str] | None,
    log_folder: str | PathLike[str] | None,
    timeout_s: float | None,
) -> list[str]:
    """The nodes that came or went."""
    if count < 1:
        raise Mistake(f"a cluster that runs jobs has at least one node, not {count}")
    staying = [info for info in await patiently(live_nodes, client.grid) if not info.draining]
    if run is not None:
        return await _scaled_by(client, split(run), count, {info.id for info in staying}, timeout_s)
    if count > len(staying):
        if spawn is None:
            raise Mistake(f"{len(staying)} nodes live, {count} are wanted: say how to start one (spawn)")
        return await add_nodes(client, count - len(staying), spawn, log_folder, timeout_s)
    # The last by name: those that were started by hand before others were added keep running.
    surplus = sorted(staying, key=lambda info: (info.name, info.id))[count:]
    return [await remove_node(client, info.id, timeout_s) for info in reversed(surplus)]


async def _scaled_by(
    client: GridClient, hook: Sequence[str], count: int, before: set[str], timeout_s: float | None
) -> list[str]:
    await run_hook(hook, address_of(client.grid), count)
    deadline_s = DEADLINE_S if timeout_s is None else timeout_s
    with trio.move_on_after(deadline_s):
        while True:
            if len(serving := await settled(client.grid)) == count:
                return sorted(before ^ set(serving))
            await trio.sleep(POLL_S)
    raise NotDone(f"there are not {count} nodes that serve their share, {deadline_s:g} s after {' '.join(hook)}")

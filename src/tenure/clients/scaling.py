"""Nodes that are to come and to go, on the core of a client: the one place for `Client`, `SyncClient` and commands.

A node comes by being started, and goes by being told to (or by SIGTERM): here that is done for the caller, who gets an
answer when the cluster has settled.
"""

import secrets
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
from tenure.scheduler.orders import Order, give_order, orders_to
from tenure.scheduler.wire import decode

__all__ = [
    "Coming",
    "add_nodes",
    "address_of",
    "another_stays",
    "left",
    "named",
    "remove_node",
    "scale",
    "scale_to",
    "settled",
    "settled_nodes",
    "tell",
]

DEADLINE_S = 120.0
GRACE_S = 5.0
"""So long a node that does not say who started it is not taken for one that is awaited: that one may be yet to come."""
POLL_S = 0.1
DECIDED_S = 5.0
"""So long a node that is told to go waits for another one, that is told to go at once, to stay or to go."""
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
    others = {info.id for info in staying} - {leaving.id}
    last = f"{leaving.id} is the last node: without it no job runs. Start another one first, or end it with SIGTERM"
    if staying and not others:
        raise Mistake(last)
    deadline_s = DEADLINE_S if timeout_s is None else timeout_s
    told = False
    try:
        with trio.move_on_after(deadline_s):
            await tell(client.grid, leaving.id, Order(drain=True))  # seen by who looks from now on
            if others and not await another_stays(client.grid, leaving.id, others):
                raise Mistake(f"{last} (going at the same time: {', '.join(sorted(others))})")
            await tell(client.grid, leaving.id, Order(leave=True))
            told = True
            await left(client.grid, leaving.id)
            return leaving.id
    finally:
        if not told:
            with trio.move_on_after(5, shield=True):
                await tell(client.grid, leaving.id, Order(drain=leaving.draining))
    if not told:
        raise NotDone(f"nobody can say whether {leaving.id} was told to leave: no answer within {deadline_s:g} s")
    raise NotDone(f"{leaving.id} has not left within {deadline_s:g} s; it has been told to, and does so when it can")


async def another_stays(grid: Grid, leaving: str, others: set[str]) -> bool:
    """Does one of these, now that they can see that this one goes? Where all are told to go at once, at least one of
    them sees that. The first by id gives way, and the next waits to see what has become of it."""

    async def look(grid: Grid) -> tuple[bool, bool]:
        orders = await orders_to(grid, others)  # at first: who has left takes its heart away before these
        said = [info for info in await said_nodes(grid) if info.id in others]
        stays = any(not (info.draining or orders[info.id].drain or orders[info.id].leave) for info in said)
        return stays, any(info.id < leaving and not orders[info.id].leave for info in said)

    end_s = trio.current_time() + DECIDED_S
    while True:
        stays, may_stay = await patiently(look, grid)
        if stays or not may_stay or trio.current_time() >= end_s:
            return stays
        await trio.sleep(POLL_S)


async def named(grid: Grid, node: str) -> NodeInfo:
    """The node of this id or name; raises `UnknownNode`."""
    said = await patiently(said_nodes, grid)  # one that is silent for a while, too: it may only be frozen
    found = [info for info in said if node in (info.id, info.name)]
    if not found:
        known = ", ".join(sorted(info.id for info in said)) or "none"
        raise UnknownNode(f"no node is called {node!r}; there are {known}")
    if len(found) > 1:
        # The one before, that has ended without a word and is started again, is listed for a while.
        alive = {info.id for info in await patiently(live_nodes, grid)}
        found = [info for info in found if info.id in alive] or found
    if len(found) > 1:
        raise Mistake(f"{len(found)} nodes are called {node!r}: say which of {', '.join(info.id for info in found)}")
    return found[0]


async def tell(grid: Grid, id: str, order: Order) -> bool:
    """Give a node an order; returns when it is stored. False: it was told to leave, and nothing else counts. Raises
    `NotDone` where members don't answer any more."""
    return await patiently(lambda grid: give_order(grid, id, order), grid)


async def left(grid: Grid, id: str) -> None:
    """Until a node has taken its leave. Raises `NotDone` where members don't answer any more."""

    async def is_gone(grid: Grid) -> bool:
        for _ in range(ABSENT_READS):
            if await grid.get(Map.NODES, 0, NODE_PREFIX + id.encode()) is not None:
                return False
            await trio.sleep(POLL_S)
        return True

    while not await patiently(is_gone, grid):  # noqa: ASYNC110  # no event tells for sure
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
    coming = Coming(count)
    spawned = [await spawned_by(split(spawn), address_of(client.grid), folder, coming.token) for _ in range(count)]
    deadline_s = DEADLINE_S if timeout_s is None else timeout_s
    with trio.move_on_after(deadline_s):
        while True:
            if ready := coming.seen([node for node in await settled_nodes(client.grid) if node.id not in before]):
                return ready
            _check(spawned)
            await trio.sleep(POLL_S)
    raise NotDone(
        f"not all of {count} nodes serve their share after {deadline_s:g} s; they go on. "
        f"Their logs: {', '.join(str(one.log_file) for one in spawned)}"
    )


class Coming:
    """Nodes that were started and are yet to come. Others come and go meanwhile: those of an autoscaler, or of what
    starts containers again."""

    def __init__(self, count: int, token: str = "") -> None:
        self.count = count
        self.token = token or secrets.token_hex(8)
        """What they say, if the command that started them reaches no other machine, and no older version."""
        self._enough_s: float | None = None

    def seen(self, new: list[NodeInfo]) -> list[str]:
        """Of the new nodes, those that were awaited; none, as long as these are not all."""
        ours = [node.id for node in new if node.spawned_by == self.token]
        if len(ours) >= self.count:
            return ours
        silent = [node.id for node in new if not node.spawned_by]
        if len(ours) + len(silent) < self.count:
            self._enough_s = None
            return []
        if self._enough_s is None:
            self._enough_s = trio.current_time()
        is_over = trio.current_time() - self._enough_s >= GRACE_S
        return (ours + silent)[: self.count] if is_over else []


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
    return [node.id for node in await settled_nodes(grid)]


async def settled_nodes(grid: Grid) -> list[NodeInfo]:
    """The same, with what they say of themselves."""
    try:
        nodes = await live_nodes(grid)
        stored = await grid.get(Map.NODES, 0, ASSIGNMENT)
    except GridError:
        return []
    if stored is None:
        return []
    published, ownership = decode(stored, Assignment), grid.ownership()
    return [node for node in nodes if not node.draining and is_settled(node, published, ownership, nodes)]


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

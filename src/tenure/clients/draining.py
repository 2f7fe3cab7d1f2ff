"""Taking a node out of service, and ending it: two phases, each of which waits, and says for what. Draining can be
given up; a node that was told to leave leaves, whether anybody waits for it or not. All nodes: see `ending`."""

import trio

from tenure.clients.quiescing import Tell, workers
from tenure.clients.scaling import another_stays, left, named, tell
from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.client import GridClient
from tenure.scheduler.deadline import checked_limit
from tenure.scheduler.errors import Mistake, NodeSilent, NotDone, NotFinished
from tenure.scheduler.grid.port import GridError
from tenure.scheduler.nodes_seen import live_nodes, patiently, said_nodes
from tenure.scheduler.orders import Order, orders_to

__all__ = ["check_takes_orders", "drain", "silent", "stop", "undrain"]

POLL_S = 0.1
LOOKS = 2
"""A node of which nothing is heard in so many looks is silent."""
UNDONE_LOOKS = 3
"""An order that reads absent so often is gone: a member that fails may hide it for a moment."""


async def drain(
    client: GridClient,
    node: str,
    on_wait: Tell | None = None,
    timeout_s: float | None = None,
    last_too: bool = False,
) -> str:
    """A node hands over all its partitions, and stays, without any. Given up (cancelled, or after `timeout_s`), it is
    told to take part again. Returns its id. Raises `Mistake` if it was told to leave, or no other node stays;
    `NotFinished` if somebody else has told it to take part again."""
    info = await _heard(client, node)
    alive = await patiently(live_nodes, client.grid)
    others = {other.id for other in alive if not other.draining} - {info.id}
    if not others and not last_too:
        raise _last(info.id)
    done, undone = False, False
    try:
        with trio.move_on_after(float("inf") if timeout_s is None else checked_limit(timeout_s)):
            if await tell(client.grid, info.id, Order(drain=True)):  # seen by who looks from now on
                if not last_too and not await another_stays(client.grid, info.id, others):
                    raise _last(info.id, f" (going at the same time: {', '.join(sorted(others))})")
                undone = not await _emptied(client, info.id, on_wait)
            elif not last_too:
                raise _leaves(info.id)
            done = True
    finally:
        if not done:
            with trio.move_on_after(5, shield=True):
                await tell(client.grid, info.id, Order())
    if not done:
        raise NotDone(
            f"{info.id} has not handed over all its partitions within {timeout_s:g} s, and was told to take part "
            "again. Look for long turns"
        )
    if undone:
        raise NotFinished(
            f"{info.id} takes part again: somebody else has told it to, or has given up draining it. Drain it again"
        )
    return info.id


async def undrain(client: GridClient, node: str) -> str:
    """A drained node takes part again."""
    info = await _heard(client, node)
    if not await tell(client.grid, info.id, Order()):
        raise _leaves(info.id)
    return info.id


def _last(id: str, why: str = "") -> Mistake:
    return Mistake(f"no node would stay to take what {id} hands over{why}: start another one, or stop this one")


def _leaves(id: str) -> Mistake:
    return Mistake(f"{id} was told to leave: it hands over what it has, and ends. Start another one in its place")


async def _heard(client: GridClient, node: str) -> NodeInfo:
    """The node of this id or name, which takes orders now. Raises `NodeSilent`, `UnknownNode`, `Mistake`."""
    info = await named(client.grid, node)
    check_takes_orders(info)
    for _ in range(LOOKS):
        if any(other.id == info.id for other in await patiently(live_nodes, client.grid)):
            return info
    raise silent(info.id, info.pid)


def silent(id: str, pid: int) -> NodeSilent:
    """What is said of a node that is still listed, and of which nothing is heard."""
    return NodeSilent(
        f"{id} is silent: it is frozen, or has ended (process {pid} on its machine). Others take over what it had, so "
        "there is nothing to hand over. One that has ended is listed for about a minute; one that is frozen can be "
        "told when it wakes: or end its process"
    )


async def _emptied(client: GridClient, id: str, on_wait: Tell | None) -> bool:
    """False: it is not told to, any more."""
    absent = 0
    while True:
        info = await _said(client, id)
        if info is None:
            raise NotDone(f"{id} has ended while it was drained: what it had is taken over as after a crash")
        if info.draining and not info.owned:
            return True
        absent = 0 if info.draining or await _is_told(client, id) else absent + 1
        if absent == UNDONE_LOOKS:
            return False
        if on_wait is not None:
            on_wait(f"{len(info.owned)} partitions of {id}")
        await trio.sleep(POLL_S)


async def _is_told(client: GridClient, id: str) -> bool:
    order = (await patiently(lambda grid: orders_to(grid, [id]), client.grid))[id]
    return order.drain or order.leave


async def _said(client: GridClient, id: str) -> NodeInfo | None:
    while True:
        try:
            found = [info for info in await said_nodes(client.grid) if info.id == id]
            return found[0] if found else None
        except GridError:
            await trio.sleep(POLL_S)


def check_takes_orders(info: NodeInfo) -> None:
    """Raises `Mistake`, with what to do instead, for a node of an older version."""
    if info.rules < 2:
        raise Mistake(
            f"{info.id} is of an older version, which takes no orders: end it with SIGTERM (process {info.pid} on its "
            "machine), which drains it"
        )


async def stop(
    client: GridClient,
    node: str,
    drain_first: bool = False,
    on_wait: Tell | None = None,
    timeout_s: float | None = None,
) -> str:
    """A node on which nothing runs ends. Raises `NotFinished` if it has partitions, or if activities run on its
    machine and no other node is there. It can't be told to stay any more. Returns its id."""
    info = await _heard(client, node)
    if drain_first:
        await drain(client, info.id, on_wait, timeout_s, last_too=True)
    else:
        _check_empty(info)
        await _check_alone(client, info)
    with trio.move_on_after(float("inf") if timeout_s is None else checked_limit(timeout_s)):
        await tell(client.grid, info.id, Order(leave=True))
        if on_wait is not None:
            on_wait(f"the end of {info.id}")
        await left(client.grid, info.id)
        return info.id
    raise NotDone(f"{info.id} has not ended within {timeout_s:g} s; it has been told to, and does so when it can")


def _check_empty(info: NodeInfo) -> None:
    if info.owned or not info.draining:
        raise NotFinished(
            f"{info.id} serves {len(info.owned)} partitions: drain it first (`tenure drain {info.name or info.id}`)"
        )


async def _check_alone(client: GridClient, info: NodeInfo) -> None:
    others = [other for other in await patiently(live_nodes, client.grid) if other.id != info.id]
    if not others or any(other.place == info.place for other in others):
        return  # nobody could be asked; or another node looks after what runs on this machine
    running = [worker for worker in await workers(client, "", info.id, None) if worker["place"] == info.place]
    if running:
        which = ", ".join(f"{worker['job']}/{worker['name']}" for worker in running[:3])
        raise NotFinished(
            f"{len(running)} activities run on the machine of {info.id}, and no other node is there ({which}): wait "
            "for them, or cancel them; or stop it with --drain, and let them report to their jobs from afar"
        )

"""Ending all nodes, when all that was accepted is finished.

    refuse inputs ──► all is quiet ──► all hold ──────────────────────────────────► nodes are told to leave ──► they end
                                          └──► seal ──► snapshot ──► ended for good ──┘

Until nodes are told to leave it can be given up, and all goes on.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import trio

from tenure.clients.draining import check_takes_orders
from tenure.clients.plain import one_error
from tenure.clients.quiescing import Rounds, Tell, Timers, keep_closed, refusing, until_quiet, workers
from tenure.clients.scaling import left, named, tell
from tenure.clients.views import Shutdown, Snapshot
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.errors import NotDone, NotFinished, TenureError
from tenure.scheduler.grid.port import Grid, GridError
from tenure.scheduler.nodes_seen import live_nodes, patiently, said_nodes
from tenure.scheduler.orders import HOLD_AGAIN_S, Order, hold, let_go
from tenure.scheduler.quiet import CONTROLLERS, EVERY
from tenure.scheduler.seal import Seal
from tenure.scheduler.snapshots.errors import SnapshotUnderWay

__all__ = ["shutdown", "shutdown_with_snapshot"]

POLL_S = 0.1
ENDING_S = 30.0
SAYS_WHY_S = 0.5
"""So long before the end of all patience a snapshot is given up, and says why."""
AS_BEFORE = "No node was told to leave, and inputs are let in again"


async def shutdown(
    client: GridClient, timers: Timers = "keep", on_wait: Tell | None = None, timeout_s: float | None = None
) -> list[str]:
    """Refuse inputs, wait until all applications are quiet, then end all nodes. Returns them."""
    end_s = _end_s(timeout_s)
    async with _at_rest(client, timers, on_wait, timeout_s) as rounds:
        await _still(rounds, on_wait, end_s)
        nodes = await _check_orders(client)
        await _tell_to_leave(client.grid, nodes)
        return await _end_all(client, nodes, on_wait)


async def shutdown_with_snapshot(
    client: GridClient,
    url: str,
    timers: Timers = "keep",
    on_wait: Tell | None = None,
    timeout_s: float | None = None,
) -> Shutdown:
    """The same; before any node is told to leave, clients store nothing any more, and a snapshot is taken: all that was
    ever acknowledged is in it. Where it can't be taken, nothing ends, and all goes on. Raises `BadLocation`,
    `StoreFailed` before anything is begun; then `NotFinished`."""
    await _names(url)
    end_s, seal = _end_s(timeout_s), Seal(client.grid, secrets.token_hex(8))
    with trio.move_on_at(end_s):
        await seal.look()
    # Who uses this client besides is refused like all others; so we ask by one of our own, which goes on.
    own = open_client(client.grid, settings=client.settings, registry=client.registry, now_ms=client.now_ms)
    with one_error():
        async with own as asking, _at_rest(client, timers, on_wait, timeout_s, asking=asking) as rounds:
            asking.allegiance.seal = seal.token
            await _still(rounds, on_wait, end_s)
            async with _lifted(seal):
                taken = await _last_snapshot(rounds, seal, url, on_wait, end_s)
                nodes = await _ended(asking, seal, taken["name"])
                rounds.over = True
            return {"nodes": await _end_all(asking, nodes, on_wait), "snapshot": taken}
    raise AssertionError("one_error lets all errors out")


def _end_s(timeout_s: float | None) -> float:
    return trio.current_time() + (float("inf") if timeout_s is None else timeout_s)


@asynccontextmanager
async def _at_rest(
    client: GridClient,
    timers: Timers,
    on_wait: Tell | None,
    timeout_s: float | None,
    asking: GridClient | None = None,
) -> AsyncIterator[Rounds]:
    """In here inputs are refused, and were so until all applications were quiet; and all nodes are told to hold."""
    async with refusing(client, EVERY, asking=asking) as rounds:
        await until_quiet(rounds, timers, on_wait, timeout_s)
        try:
            with one_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_keep_holding, client.grid)
                    yield rounds
                    nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(5, shield=True):
                await _persistently(let_go, client.grid)


@asynccontextmanager
async def _lifted(seal: Seal) -> AsyncIterator[None]:
    """Behind it clients go on, unless the cluster has ended."""
    try:
        yield
    finally:
        with trio.move_on_after(5, shield=True):
            await seal.lift()


async def _last_snapshot(rounds: Rounds, seal: Seal, url: str, on_wait: Tell | None, end_s: float) -> Snapshot:
    waits_for, taken = "clients to hear that nothing is stored any more", None

    def tell() -> None:
        if on_wait is not None:
            on_wait(waits_for)

    with trio.move_on_at(end_s), one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_closed, rounds)
            tell()
            await seal.put()
            await seal.settle()
            waits_for = f"the snapshot to {url}"
            tell()
            taken = await _taken(rounds.client, url, end_s)
            nursery.cancel_scope.cancel()
    if taken is None:
        raise NotFinished(f"it waits for {waits_for}, and that took too long. {AS_BEFORE}")
    return taken


async def _names(url: str) -> list[str]:
    from tenure.scheduler.snapshots.catalog import Catalog
    from tenure.scheduler.snapshots.stores import open_store

    return await Catalog(open_store(url)).names()


async def _taken(client: GridClient, url: str, end_s: float) -> Snapshot:
    from tenure.scheduler.snapshots import calls

    while True:
        left_s = end_s - trio.current_time()
        limit_s = None if left_s == float("inf") else max(0.1, left_s - SAYS_WHY_S)
        try:
            return cast(Snapshot, await calls.snapshot(client, url, deadline_s=limit_s))
        except SnapshotUnderWay:
            await trio.sleep(POLL_S)  # it may be without what was acknowledged last
        except TenureError as error:
            raise NotFinished(f"{str(error).rstrip('.')}. {AS_BEFORE}") from error


async def _ended(client: GridClient, seal: Seal, snapshot: str) -> list[str]:
    try:
        nodes = await _check_orders(client)
        with trio.move_on_after(ENDING_S, shield=True) as deadline:
            await seal.end(snapshot)
    except TenureError as error:
        raise NotFinished(f"snapshot {snapshot} was taken, but {str(error).rstrip('.')}. {AS_BEFORE}") from error
    if deadline.cancelled_caught:
        raise NotDone(
            f"snapshot {snapshot} was taken, and the members do not answer: see `tenure nodes` for whether all leave"
        )
    await _tell_to_leave(client.grid, nodes)  # those of this version see it for themselves, too
    return nodes


async def _keep_holding(grid: Grid) -> None:
    while True:
        await _persistently(hold, grid)
        await trio.sleep(HOLD_AGAIN_S)


async def _persistently(act: Callable[[Grid], Awaitable[None]], grid: Grid) -> None:
    while True:
        try:
            return await act(grid)
        except GridError:
            await trio.sleep(POLL_S)


async def _still(rounds: Rounds, on_wait: Tell | None, end_s: float) -> None:
    """Until autoscalers start no more nodes, and those that they have started are there, to be ended with the rest."""
    waits_for = "the first answers"
    with trio.move_on_at(end_s):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_closed, rounds)
            while waits_for := await _what_moves(rounds.client):
                if on_wait is not None:
                    on_wait(waits_for)
                await trio.sleep(POLL_S)
            nursery.cancel_scope.cancel()
    if waits_for:
        raise NotFinished(f"not all nodes can be ended yet: it waits for {waits_for}")


async def _what_moves(client: GridClient) -> str:
    nodes = await patiently(live_nodes, client.grid)
    if deaf := [info.id for info in nodes if info.holds is False]:
        return f"{', '.join(deaf)} to hear that all nodes are to end"
    try:
        running = await workers(client, CONTROLLERS, "", None)
    except NotDone as error:
        return str(error)
    names = {info.name for info in await patiently(said_nodes, client.grid)}
    coming = [worker["name"] for worker in running if worker["kind"] == "process" and worker["name"] not in names]
    return f"what autoscalers have started: {', '.join(coming)}" if coming else ""


async def _check_orders(client: GridClient) -> list[str]:
    nodes = [info.id for info in await patiently(live_nodes, client.grid)]
    for id in nodes:
        check_takes_orders(await named(client.grid, id))
    return nodes


async def _tell_to_leave(grid: Grid, nodes: list[str]) -> None:
    async with trio.open_nursery() as nursery:
        for id in nodes:
            nursery.start_soon(tell, grid, id, Order(leave=True))


async def _end_all(client: GridClient, nodes: list[str], on_wait: Tell | None) -> list[str]:
    for id in nodes:
        if on_wait is not None:
            on_wait(f"the end of {id}")
        await left(client.grid, id)
    return nodes

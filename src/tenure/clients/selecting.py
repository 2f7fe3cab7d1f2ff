"""The jobs that a selector names, and what is done to all of them: for clients and for commands."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Literal, cast

import trio

from tenure.clients import operations
from tenure.clients.node_rows import node_rows
from tenure.clients.selector import NODES, one_name, parse_selector
from tenure.clients.views import JobSummary
from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import JobStuck, Mistake, TenureError, UnknownJob
from tenure.scheduler.keys import checked_address, partition_of

__all__ = ["Action", "do", "do_to_all", "jobs", "meant", "nodes", "select"]

AT_ONCE_MAX = 64
Action = Literal["pause", "resume", "cancel", "retry", "skip", "purge", "unschedule", "end"]
"""To skip is to retry without what it failed on; to end is to unschedule now."""
_ACTIONS: dict[Action, Callable[[GridClient, str, float | None], Awaitable[object]]] = {
    "pause": operations.pause,
    "resume": operations.resume,
    "cancel": operations.cancel,
    "retry": lambda client, id, timeout_s: operations.retry(client, id, False, timeout_s),
    "skip": lambda client, id, timeout_s: operations.retry(client, id, True, timeout_s),
    "purge": operations.purge,
    "unschedule": lambda client, id, timeout_s: operations.unschedule(client, id, True, timeout_s),
    "end": lambda client, id, timeout_s: operations.unschedule(client, id, True, timeout_s, now=True),
}


async def select(
    client: GridClient,
    selector: str,
    timeout_s: float | None = None,
    *,
    limit: int | None = None,
    silent: dict[int, TenureError] | None = None,
) -> list[JobSummary]:
    """The jobs that it names, in the order of their ids: all, if it says nothing; the first `limit` of them. Partitions
    that don't answer are told in `silent`, if that is given."""
    wanted, chosen = one_name(selector), parse_selector(selector)
    only = [partition_of(checked_address(wanted), client.partition_count)] if wanted else None
    first = limit if not selector.strip() else None
    found = await client.directory.jobs(deadline_s=timeout_s, only=only, silent=silent, limit=first)
    names = {node.id: node.name for node in await client.directory.nodes()}
    for job in found:
        job["node_name"] = names.get(job["node"], "")
    return list(islice(filter(chosen, cast(list[JobSummary], found)), limit))


async def jobs(client: GridClient, selector: str, timeout_s: float | None) -> list[JobSummary]:
    """Those that it names; all, if it says nothing."""
    return await select(client, selector, timeout_s)


async def nodes(client: GridClient, selector: str) -> list[NodeInfo]:
    """Those that it names, as `tenure nodes` takes it; all, if it says nothing."""
    found = await operations.nodes(client)
    if not selector.strip():
        return found
    chosen = parse_selector(selector, NODES)
    ids = {row["id"] for row in await node_rows(client.grid) if chosen(row)}
    return [info for info in found if info.id in ids]


async def meant(
    client: GridClient,
    action: Action,
    selector: str,
    timeout_s: float | None = None,
    *,
    silent: dict[int, TenureError] | None = None,
    left: dict[str, str] | None = None,
) -> list[str]:
    """The ids of those that it is to be done to. Raises `UnknownJob` if the selector is the id of a job that is not
    there; a condition may hold for none. Raises `JobStuck` if there is nothing to retry, but what is stuck. Partitions
    that don't answer are told in `silent`, if that is given; in `left` how those are that are left alone, as they have
    not failed."""
    if not selector.strip():
        raise Mistake("say which jobs: an id, or a selector like 'type=counter and state=failed' (all: 'id=*')")
    found = await select(client, selector, timeout_s, silent=silent)
    if not found and (name := one_name(selector)):
        for error in (silent or {}).values():
            raise error  # nobody knows whether it is there
        raise UnknownJob(f"there is no job {name!r}")
    if action not in ("retry", "skip"):
        return [job["id"] for job in found]
    failed = [job["id"] for job in found if job["status"] == "failed" or job["error"]]
    if left is not None:
        how = {job["id"]: f"stuck: {job['stuck']}" if job["stuck"] else job["status"] for job in found}
        left |= {id: how[id] for id in how.keys() - set(failed)}
    if not failed and (stuck := [job for job in found if job["stuck"]]):
        raise JobStuck(_not_failed(stuck))
    return failed


def _not_failed(stuck: Sequence[JobSummary]) -> str:
    """Why there is nothing to be tried again."""
    first = f"job {stuck[0]['id']!r} has not failed, it is stuck: {stuck[0]['stuck']}"
    return first if len(stuck) == 1 else f"{first} (and {len(stuck) - 1} more that are stuck)"


async def do(
    client: GridClient,
    action: Action,
    ids: Sequence[str],
    timeout_s: float | None = None,
    *,
    told: dict[str, object] | None = None,
) -> dict[str, TenureError]:
    """Do it to all, many at once. What could not be done, and why. `told`: what came of those that were done."""
    failures: dict[str, TenureError] = {}
    told = {} if told is None else told
    limiter = trio.CapacityLimiter(AT_ONCE_MAX)

    async def one(id: str) -> None:
        async with limiter:
            try:
                told[id] = await _ACTIONS[action](client, id, timeout_s)
            except TenureError as error:
                failures[id] = error

    async with trio.open_nursery() as nursery:
        for id in ids:
            nursery.start_soon(one, id)
    return failures


async def do_to_all(client: GridClient, action: Action, selector: str, timeout_s: float | None) -> list[str]:
    """The ids of those that it was done to. Raises the first error, after all others are done."""
    ids = await meant(client, action, selector, timeout_s)
    failures = await do(client, action, ids, timeout_s)
    for id in ids:
        if id in failures:
            if len(failures) > 1:
                failures[id].add_note(f"{len(failures)} of {len(ids)} jobs could not be changed; the others were")
            raise failures[id]
    return ids

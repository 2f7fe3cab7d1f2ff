"""What the measurements on real members share: a fresh cluster of processes, its jobs, and their sum."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.settings import NodeSettings
from tenure.testing.backend import Plan
from tenure.testing.hazelcast_cluster import HazelcastBackend, open_hazelcast

__all__ = ["APPLICATION", "each", "footprint_mib", "fresh_cluster", "schedule", "states"]

APPLICATION = Path(__file__).parent / "application.py"
AT_ONCE = 64


@asynccontextmanager
async def fresh_cluster(
    *, nodes: int, members: int = 2, settings: NodeSettings | None = None
) -> AsyncIterator[tuple[HazelcastBackend, GridClient]]:
    """Members with one synchronous backup, nodes in processes of their own, and a client in this one."""
    plan = Plan(
        nodes=nodes,
        members=members,
        grid="hazelcast",
        app=str(APPLICATION),
        partitions=None,
        backups=1,
        settings=settings or NodeSettings(),
        seed=0,
        start=None,
        faults=None,
    )
    async with open_hazelcast(plan) as cluster, cluster.open_client(None, None) as client:
        yield cluster, client


async def schedule(client: GridClient, job_type: str, ids: Iterable[str]) -> None:
    """These jobs, started: each has answered a question."""

    async def one(id: str) -> None:
        await client.defining.schedule(job_type, id, {})
        await client.state(id)

    await each(ids, one)


async def states(client: GridClient, ids: Iterable[str]) -> dict[str, object]:
    """The committed states of these jobs, each behind all that this client published to it."""
    found: dict[str, object] = {}

    async def one(id: str) -> None:
        found[id] = await client.state(id, deadline_s=120)

    await each(ids, one)
    return found


async def each(things: Iterable[str], do: Callable[[str], Awaitable[None]], at_once: int = AT_ONCE) -> None:
    """Do it for each of them, so many at the same time."""
    remaining = iter(list(things))

    async def worker() -> None:
        for thing in remaining:
            await do(thing)

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(worker)


def footprint_mib() -> tuple[float, float]:
    """Resident memory of this process and all it started, and the same with what they share counted once (PSS)."""
    this = psutil.Process()
    rss = pss = 0
    for process in (this, *this.children(recursive=True)):
        try:
            memory = process.memory_full_info()
        except psutil.Error:
            continue  # it has just ended
        rss += memory.rss
        pss += getattr(memory, "pss", memory.rss)
    return rss / 2**20, pss / 2**20

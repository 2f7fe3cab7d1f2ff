"""What the engine carries when the grid costs next to nothing: one publisher, one node, one process, one thread."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from tenure.bench.application import AsyncCounter, Counter, now_ms
from tenure.listeners import listening
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import JobType, Registry
from tenure.scheduler.node import Node

__all__ = ["JOBS", "REGISTRY", "measure", "run_node", "running_node", "total_of"]

JOBS = 1_000
CHUNK = 20_000
WARM_UP = 20_000
AT_ONCE = 200
REGISTRY = Registry(JobType("bench-counter", Counter), JobType("bench-async-counter", AsyncCounter))


@asynccontextmanager
async def running_node(cluster: MemoryCluster, name: str) -> AsyncIterator[Node]:
    """A node on a connection of its own; leaving is a crash."""
    async with trio.open_nursery() as nursery:
        node, kill = await nursery.start(run_node, cluster, name)
        yield node
        kill()


async def run_node(
    cluster: MemoryCluster, name: str, *, task_status: trio.TaskStatus[tuple[Node, Callable[[], None]]]
) -> None:
    """Run a node; it says what it is and how to kill it."""
    grid = cluster.connect()
    formed = await find_or_form(grid, "bench")
    host = Host(grid, name, REGISTRY, now_ms, formed.formation, formed.incarnation)
    node = Node(host, listening, name=name)

    def kill() -> None:
        grid.kill()
        scope.cancel()

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            task_status.started((node, kill))


async def measure(job_type: str, messages: int) -> dict[str, float | bool]:
    """Messages a second from `publish_many` to the last committed turn, and the same per second of this process's
    CPU time (what a core of its own would give)."""
    cluster = MemoryCluster()
    async with (
        running_node(cluster, "node"),
        open_client(cluster.connect(), registry=REGISTRY, now_ms=now_ms) as client,
    ):
        ids = [f"job-{n}" for n in range(JOBS)]
        async with trio.open_nursery() as nursery:
            for id in ids:
                nursery.start_soon(client.defining.schedule, job_type, id, {"total": 0})
        await _publish(client, ids, WARM_UP)
        before = await total_of(client, ids)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        await _publish(client, ids, messages)
        after = await total_of(client, ids)
        took_s, took_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    return {
        "messages_per_s": messages / took_s,
        "messages_per_cpu_s": messages / took_cpu_s,
        "exact": before == WARM_UP and after == WARM_UP + messages,
    }


async def _publish(client: GridClient, ids: list[str], messages: int) -> None:
    for first in range(0, messages, CHUNK):
        count = min(CHUNK, messages - first)
        await client.publish_many([(ids[(first + n) % len(ids)], {"n": 1}) for n in range(count)])


async def total_of(client: GridClient, ids: list[str]) -> int:
    """The sum of the jobs' committed states; each is asked for behind all that was published to it."""
    totals: list[int] = []

    async def read(some: list[str]) -> None:
        for id in some:
            totals.append((await client.state(id)).total)

    async with trio.open_nursery() as nursery:
        for n in range(AT_ONCE):
            nursery.start_soon(read, ids[n::AT_ONCE])
    return sum(totals)

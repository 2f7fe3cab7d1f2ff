"""What idle jobs cost on the memory grid: resident memory of their node, and the time to open their partitions.

The jobs are committed by the engine's own journal, in bulk, since scheduling a million of them one by one would
measure something else. The grid is in the same process: what it holds is there before the node is, and is not
counted; the node's connection, sweeps and run loops are.
"""

import gc
import time
import zlib
from collections import defaultdict
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from random import Random

import psutil
import trio
from msgspec import Raw

from tenure.bench.application import now_ms
from tenure.bench.memory_throughput import REGISTRY, run_node, running_node, total_of
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Map
from tenure.scheduler.host import Host
from tenure.scheduler.imaging import Imaging
from tenure.scheduler.journal import Journal
from tenure.scheduler.node import Node
from tenure.scheduler.wire import Definition, JobRecord, Record, RecordKind, Status, encode

__all__ = ["measure_idle", "measure_opening", "measure_takeover"]

GROUP = 1_000
SAMPLE = 1_000
TYPE = "bench-counter"


async def measure_idle(jobs: int, *, settle_s: float = 1.0) -> dict[str, float | bool]:
    """Bytes that one idle job adds to its node's resident memory, beyond its encoded state."""
    cluster = MemoryCluster()
    state_bytes, places = await _fill(cluster, jobs)
    gc.collect()
    before = _resident_bytes()
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(running_node(cluster, "node"))
        await _all_open(node)
        client = await stack.enter_async_context(_client(cluster))
        await trio.sleep(settle_s)  # the first sweep of the definitions goes over all of them
        gc.collect()
        after = _resident_bytes()
        exact = await _verify(client, jobs)
    # The ids were in memory before. Freed earlier, their room would be taken for the jobs', and the figure be too low.
    places.clear()
    return {
        "idle_job_bytes": (after - before) / jobs - state_bytes,
        "idle_state_bytes": state_bytes,
        "idle_jobs": jobs,
        "exact": exact,
    }


async def measure_takeover(jobs: int) -> dict[str, float | bool]:
    """Of two nodes one dies without a word, and the other takes over so many jobs: from the kill until every
    partition is open and a message to one of these jobs is answered. The time until the death is noticed, and
    the opening itself, are shown apart."""
    cluster = MemoryCluster()
    await _fill(cluster, 2 * jobs)
    async with (
        running_node(cluster, "second") as second,
        trio.open_nursery() as nursery,
        _client(cluster) as client,
    ):
        first, kill = await nursery.start(run_node, cluster, "first")
        while len(first.tenures) < cluster.partition_count // 2:  # noqa: ASYNC110  # no event says so
            await trio.sleep(0.01)
        await _all_open(first, second)
        taken = set(first.tenures)
        ids = [id for id in map(_id, range(2 * jobs)) if zlib.crc32(id.encode()) % cluster.partition_count in taken]
        killed_s = trio.current_time()
        kill()
        while second.assignment.owners.count("second") < cluster.partition_count:  # noqa: ASYNC110
            await trio.sleep(0.001)
        noticed_s = trio.current_time()
        await _all_open(second)
        opened_s = trio.current_time()
        await client.ask(ids[0], {"n": 0})
        answered_s = trio.current_time()
        exact = await _verify(client, 2 * jobs)
    return {
        "takeover_s": answered_s - killed_s,
        "takeover_detection_s": noticed_s - killed_s,
        "takeover_opening_s": opened_s - noticed_s,
        "takeover_jobs": len(ids),
        "exact": exact,
    }


async def measure_opening(jobs: int) -> dict[str, float | bool]:
    """CPU time to open one partition of so many jobs, from its image and journal: it grows with the bytes."""
    cluster = MemoryCluster(partitions=1)
    await _fill(cluster, jobs)
    grid = cluster.connect()
    formed = await find_or_form(grid, "bench")
    host = Host(grid, "node", REGISTRY, now_ms, formed.formation, formed.incarnation)
    times_s, journals = [], [_journal(host, 0) for _ in range(3)]
    for journal in journals:
        began_s = time.process_time()
        await journal.read()
        await journal.open(host.node, now_ms)
        times_s.append(time.process_time() - began_s)
    exact = all(len(journal.state.jobs) == jobs for journal in journals)
    image = journals[-1].head.image
    return {"open_s": min(times_s), "open_jobs": jobs, "open_bytes": image.size_bytes if image else 0, "exact": exact}


# -- filling a grid -------------------------------------------------------------------------------


async def _fill(cluster: MemoryCluster, jobs: int) -> tuple[int, dict[int, list[str]]]:
    """Commit so many jobs, as their first turns would have; returns the bytes of one job's state, and the jobs' ids
    by partition."""
    grid = cluster.connect()
    formed = await find_or_form(grid, "bench")
    host = Host(grid, "filler", REGISTRY, now_ms, formed.formation, formed.incarnation)
    places: dict[int, list[str]] = defaultdict(list)
    for n in range(jobs):
        id = _id(n)
        places[zlib.crc32(id.encode()) % cluster.partition_count].append(id)
    state = REGISTRY["bench-counter"].initial({"total": 1})
    definition = encode(Definition(TYPE, Raw(state), 1, 1, "running"))
    record = JobRecord(TYPE, 1, 1, 1, Status.RUNNING, state, 1)
    for partition, ids in places.items():
        journal = _journal(host, partition)
        await journal.read()
        await journal.open(host.node, now_ms)
        for first in range(0, len(ids), GROUP):
            group = ids[first : first + GROUP]
            await journal.commit(_record(host, journal, RecordKind.TURNS, dict.fromkeys(group, record)))
            for id in group:
                await grid.put_if_absent(Map.JOBS, partition, id.encode(), definition)
        await Imaging(journal).write()
        await journal.commit(_record(host, journal, RecordKind.CLOSING, {}))
    grid.close()
    return len(state), places


def _record(host: Host, journal: Journal, kind: int, jobs: dict[str, JobRecord]) -> Record:
    return Record(host.new_id(), "", kind, journal.state.epoch, host.node, now_ms(), jobs=jobs)


def _journal(host: Host, partition: int) -> Journal:
    return Journal(
        host.grid,
        partition,
        formation=host.formation,
        settings=host.settings,
        new_id=host.new_id,
        random=Random(partition),
        report=host.report,
    )


def _id(n: int) -> str:
    return f"job-{n}"


# -- looking --------------------------------------------------------------------------------------


def _client(cluster: MemoryCluster) -> AbstractAsyncContextManager[GridClient]:
    return open_client(cluster.connect(), registry=REGISTRY, now_ms=now_ms)


async def _all_open(*nodes: Node) -> None:
    while sum(len(node.tenures) for node in nodes) < nodes[0].grid.partition_count:  # noqa: ASYNC110  # no event says so
        await trio.sleep(0.001)


async def _verify(client: GridClient, jobs: int) -> bool:
    """Are all there, and do the states of some say what was committed?"""
    statuses = await client.directory.partitions()
    some = Random(jobs).sample(range(jobs), min(jobs, SAMPLE))
    committed = await total_of(client, [_id(n) for n in some])
    return committed == len(some) and sum(status["jobs"] for status in statuses) == jobs


def _resident_bytes() -> int:
    rss: int = psutil.Process().memory_info().rss
    return rss

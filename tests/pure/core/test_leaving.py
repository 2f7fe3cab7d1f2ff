"""A member that leaves takes writes and tells of nothing: what it holds is looked for until somebody else has it."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from tenure.listeners import listening
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.context import Context
from tenure.scheduler.grid.memory import Fault, Faults, FaultyCluster
from tenure.scheduler.grid.port import Ownership
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.node import Node
from tenure.scheduler.settings import ClientSettings, NodeSettings

PARTITIONS, JOBS = 120, 240
LEAVES_WITHIN_S = 20.0
LEAVER = "m2"


def now_ms() -> int:
    return round(trio.current_time() * 1000)


class Late(Job):
    longest_ms: int = 0

    def on_message(self, ctx: Context, message: dict[str, int]) -> None:
        self.longest_ms = max(self.longest_ms, now_ms() - message["at_ms"])


@asynccontextmanager
async def open_cluster() -> AsyncIterator[tuple[FaultyCluster, GridClient]]:
    faults = Faults()
    faults.migration_s = (0.0, LEAVES_WITHIN_S)
    cluster = FaultyCluster(faults=faults, partitions=PARTITIONS, members=3, backups=1)
    registry = Registry()
    registry.add(JobType("late", Late))
    async with trio.open_nursery() as nursery:
        for name, member in (("one", "m0"), ("two", "m1")):
            grid = cluster.connect(member=member)
            formed = await find_or_form(grid, "f")
            host = Host(grid, name, registry, now_ms, formed.formation, 1, NodeSettings())
            await nursery.start(Node(host, listening, name=name).run)
        async with open_client(
            cluster.connect(), settings=ClientSettings(), registry=registry, now_ms=now_ms
        ) as client:
            for n in range(JOBS):
                await client.defining.schedule("late", f"job-{n}", {})
            for n in range(JOBS):
                await client.ask(f"job-{n}", {"at_ms": now_ms()})
            yield cluster, client
        nursery.cancel_scope.cancel()


async def longest_waits_s(cluster: FaultyCluster, client: GridClient) -> tuple[float, float, float]:
    """Of any message for its turn, and of any question for its answer, while a member leaves; and until its first
    partition had moved, so that anybody could tell."""
    asked_s, left_s, told_s = 0.0, trio.current_time(), math.inf

    async def ask(n: int) -> None:
        nonlocal asked_s
        began_s = trio.current_time()
        await client.ask(f"job-{n}", {"at_ms": now_ms()})
        asked_s = max(asked_s, trio.current_time() - began_s)

    cluster.leave_member(LEAVER)
    n = 0
    async with trio.open_nursery() as nursery:
        while LEAVER in cluster.members:
            await client.publish_many([(f"job-{n % JOBS}", {"at_ms": now_ms()}) for n in range(n, n + 16)])
            nursery.start_soon(ask, n % JOBS)
            n += 17
            if client.grid.ownership().leaving:
                told_s = min(told_s, trio.current_time() - left_s)
            await trio.sleep(0.05)
    states = [await client.state(f"job-{n}") for n in range(JOBS)]
    return max(state.longest_ms for state in states) / 1000, asked_s, told_s


async def test_messages_on_a_member_that_leaves_wait_only_a_little() -> None:
    async with open_cluster() as (cluster, client):
        waited_s, asked_s, told_s = await longest_waits_s(cluster, client)
    assert cluster.faults.counts[Fault.EVENT_LOST] > 100, "it told of nothing"
    assert told_s < 3.0
    # From then on all are looked at three times a second.
    assert waited_s < told_s + 0.6
    assert asked_s < told_s + 0.6


async def test_they_would_wait_for_the_slow_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(before: Ownership, after: Ownership) -> frozenset[str]:
        return frozenset()

    monkeypatch.setattr("tenure.scheduler.grid.memory.faulty_connection.leaving", nobody)
    async with open_cluster() as (cluster, client):
        waited_s, asked_s, _ = await longest_waits_s(cluster, client)
    assert waited_s > 2.0
    assert asked_s > 2.0

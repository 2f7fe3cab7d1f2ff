"""Whatever arrives, on real members: no record over 8 MiB, and the loop of a node comes round in a quarter second.

The node runs in this process, the client in another thread: its work is not the node's. What counts is the processor
time of the node's thread between two rounds of its loop, whatever else the machine is busy with.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio

import tenure
from tenure.connect import wall_clock_ms
from tenure.listeners import listening
from tenure.members import Member, free_port, start_member
from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.grid.hazelcast import HazelcastGrid, HazelcastSettings
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.keys import partition_of
from tenure.scheduler.node import Node
from tests.cluster.test_adapter import SETTINGS

pytestmark = pytest.mark.cluster

MIB = 2**20
RECORD_MAX, STALL_MAX_S = 8 * MIB, 0.25
PARTITIONS = 4
REGISTRY = Registry()


@tenure.job("bounded-keeper", registry=REGISTRY)
class Keeper(tenure.Job):
    blob: bytes = b""
    n: int = 0

    def on_message(self, ctx: tenure.Context, message: Any) -> int:
        if isinstance(message, bytes):
            self.blob = message
        self.n += 1
        return self.n


@tenure.job("bounded-sender", registry=REGISTRY)
class Sender(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: int) -> None:
        ctx.send("sink", b"x" * message)


@tenure.job("bounded-subscriber", topics=("news",), registry=REGISTRY)
class Subscriber(Keeper):
    pass


@tenure.job("bounded-worker", registry=REGISTRY)
class Worker(Keeper):
    def on_message(self, ctx: tenure.Context, message: Any) -> int:
        end_s = time.perf_counter() + 0.001
        while time.perf_counter() < end_s:
            pass
        self.n += 1
        return self.n


@pytest.fixture(scope="module")
def member() -> Iterator[Member]:
    settings = replace(SETTINGS, cluster_name="bounded", port=free_port(), partition_count=PARTITIONS, heap_max_mib=768)
    member = trio.run(start_member, settings)
    yield member
    member.kill()


async def served(member: Member, drive: Callable[[tenure.SyncClient], None]) -> float:
    """The longest time that a node's loop worked without coming round while a client did that."""
    stalls = [0.0]

    async def watch() -> None:
        while True:
            began_s = time.thread_time()
            await trio.sleep(0.005)
            stalls.append(time.thread_time() - began_s)

    name, address = member.settings.cluster_name, f"{member.address[0]}:{member.address[1]}"
    settings = HazelcastSettings(cluster_name=name, addresses=(address,), backups=0)
    async with HazelcastGrid.connect(settings) as grid, trio.open_nursery() as nursery:
        formed = await find_or_form(grid, "bounded")
        host = Host(grid, "bounded", REGISTRY, wall_clock_ms, formed.formation, formed.incarnation)
        await nursery.start(Node(host, listening, name="bounded").run)
        nursery.start_soon(watch)

        def connected() -> None:
            with tenure.SyncClient(f"{name}@{address}", registry=REGISTRY) as client:
                drive(client)

        await trio.to_thread.run_sync(connected)
        nursery.cancel_scope.cancel()
    return max(stalls)


@contextmanager
def jobs(client: tenure.SyncClient, type: Any, ids: list[str]) -> Iterator[list[str]]:
    client.schedule_many([(type, id, {}) for id in ids], timeout_s=60)
    yield ids
    for id in ids:
        client.unschedule(id, timeout_s=60)


def until(done: Callable[[], bool], patience_s: float = 60.0) -> None:
    end_s = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < end_s, "waited too long"
        time.sleep(0.1)


def broadcast_to_large_jobs(client: tenure.SyncClient) -> None:
    ids = [id for n in range(400) if partition_of(id := f"large-{n}", PARTITIONS) == 0][:40]
    with jobs(client, Keeper, ids):
        for id in ids:
            client.ask(id, b"x" * (MIB - 100), timeout_s=20)
        client.broadcast(Keeper, 1)
        until(lambda: all(client.state(id).n == 2 for id in ids[-3:]))


def send_much(client: tenure.SyncClient) -> None:
    with jobs(client, Sender, ["sender"]), jobs(client, Keeper, ["sink"]):
        client.publish_many([("sender", MIB - 100)] * 100, timeout_s=60)
        until(lambda: client.state("sink", timeout_s=60).n == 100)


def publish_to_many(client: tenure.SyncClient) -> None:
    ids = [f"subscriber-{n}" for n in range(500)]
    with jobs(client, Subscriber, ids):
        until(lambda: client.topics().get("news", 0) == 500)
        client.publish_many([(tenure.Topic("news"), n) for n in range(400)], timeout_s=60)
        until(lambda: all(client.state(id, timeout_s=60).n == 400 for id in (ids[0], ids[250], ids[-1])), 120)


def look_at_dead_letters(client: tenure.SyncClient) -> None:
    for _ in range(2):
        client.publish_many([("nobody", b"x" * (MIB - 100))] * 8, timeout_s=60)
    until(lambda: len(client.dead_letters(timeout_s=60)) == 16)
    assert client.discard(client.dead_letters(timeout_s=60), timeout_s=60) == 16


def work_off_a_backlog(client: tenure.SyncClient) -> None:
    with jobs(client, Worker, ["worker"]):
        client.pause("worker")
        client.publish_many([("worker", n) for n in range(5000)], timeout_s=60)
        client.resume("worker", timeout_s=60)
        until(lambda: client.state("worker", timeout_s=60).n == 5000)


@pytest.mark.parametrize(
    "drive", [broadcast_to_large_jobs, send_much, publish_to_many, look_at_dead_letters, work_off_a_backlog]
)
def test_records_and_passes_are_bounded(
    member: Member, sizes: list[int], drive: Callable[[tenure.SyncClient], None]
) -> None:
    stall_s = trio.run(served, member, drive)
    assert max(sizes) <= RECORD_MAX
    assert stall_s <= STALL_MAX_S

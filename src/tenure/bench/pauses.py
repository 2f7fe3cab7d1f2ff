"""The longest pause of any job, under a steady load, while something happens to the cluster.

Two things are looked at, and the longer counts:

* every message says when it was *to be* sent (a publisher that is late is no excuse), and its job keeps the
  longest that one of them waited for its turn;
* each partition is asked something once a second, and the answer comes after the commit.

What happened before the event is not counted; it is shown as the calm pause.
"""

import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import trio

from tenure.bench.application import Gauge, now_ms
from tenure.bench.clusters import fresh_cluster, schedule, states
from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import TenureError
from tenure.scheduler.keys import partition_of
from tenure.testing.hazelcast_cluster import HazelcastBackend

__all__ = ["Event", "Load", "measure_handoff", "measure_member_kill", "measure_node_kill", "measure_pause"]

JOBS = 1_000
MESSAGES_PER_S = 5_000
TICK_S = 0.1
PROBE_EVERY_S = 1.0
CALM_S = 6.0
AFTER_S = 5.0
DEADLINE_S = 60.0
Event = Callable[[HazelcastBackend, Random], Awaitable[object]]
Begin = Callable[[HazelcastBackend], Awaitable[object]]


async def measure_handoff() -> dict[str, Any]:
    """One of two nodes is drained."""
    return await measure_pause("handoff", 2, _drain)


async def measure_node_kill() -> dict[str, Any]:
    """One of two nodes is killed with -9."""
    return await measure_pause("node_kill", 2, _kill_node)


async def measure_member_kill() -> dict[str, Any]:
    """One of three members is killed with -9, under two nodes."""
    return await measure_pause("member_kill", 3, _kill_member)


async def _drain(cluster: HazelcastBackend, random: Random) -> None:
    await cluster.drain(random.choice(await cluster.nodes()))


async def _kill_node(cluster: HazelcastBackend, random: Random) -> None:
    await cluster.kill(random.choice(await cluster.nodes()))


async def _kill_member(cluster: HazelcastBackend, random: Random) -> None:
    await cluster.kill_member(random.choice(await cluster.members()))


async def measure_pause(
    name: str,
    members: int,
    event: Event,
    *,
    begin: Begin | None = None,
    per_second: int = MESSAGES_PER_S,
    after_s: float = AFTER_S,
) -> dict[str, Any]:
    """The longest pause around an event, and for so long after it, on so many members and two nodes (or those that
    `begin` starts)."""
    async with fresh_cluster(nodes=2 if begin is None else 0, members=members) as (cluster, client):
        if begin is not None:
            await begin(cluster)
        ids = [f"job-{n}" for n in range(JOBS)]
        await schedule(client, "bench-gauge", ids)
        load = Load(client, ids, per_second)
        probes = Probes(client, ids)
        gc.collect()
        gc.freeze()  # this process, which only measures, would stop for its own full collections
        async with trio.open_nursery() as nursery:
            load_ended = trio.Event()
            nursery.start_soon(load.run, load_ended)
            nursery.start_soon(probes.run, nursery)
            await trio.sleep(CALM_S)
            calm_ms = max(probes.longest_ms, max(gauge.waited_ms_max for gauge in await _gauges(client, ids)))
            load.forget = True
            await trio.sleep(1.0)
            probes.longest_ms = 0.0
            began_s, began_ms = time.perf_counter(), now_ms()
            await event(cluster, Random())
            event_s = time.perf_counter() - began_s
            await trio.sleep(after_s)
            load.stop = True
            await load_ended.wait()
            gauges = await _gauges(client, ids)
            nursery.cancel_scope.cancel()
    worst = max(gauges, key=lambda gauge: gauge.waited_ms_max)
    turn_ms = worst.waited_ms_max
    return {
        f"{name}_pause_ms": float(max(turn_ms, probes.longest_ms)),
        f"{name}_turn_pause_ms": float(turn_ms),
        f"{name}_answer_pause_ms": probes.longest_ms,
        f"{name}_calm_pause_ms": float(calm_ms),
        f"{name}_took_s": event_s,
        f"{name}_worst_after_s": (worst.waited_at_ms - began_ms) / 1000,
        f"{name}_messages_per_s": load.sent / load.took_s,
        f"{name}_unanswered": probes.failed,
        "exact": sum(gauge.total for gauge in gauges) == load.sent
        and not any(gauge.disordered for gauge in gauges)
        and not probes.failed,
    }


async def _gauges(client: GridClient, ids: list[str]) -> list[Gauge]:
    return [cast(Gauge, gauge) for gauge in (await states(client, ids)).values()]


@dataclass
class Load:
    """Messages to all jobs in turn, at a steady rate, whatever becomes of them."""

    client: GridClient
    ids: list[str]
    per_second: int = MESSAGES_PER_S
    sent: int = 0
    stored: int = 0
    """All messages before this one are known to be stored."""
    stop: bool = False
    forget: bool = False
    """From now on: each job's next message makes it forget the pauses before."""
    took_s: float = 0.0
    _forgotten: set[str] = field(default_factory=set)
    _publishing: set[int] = field(default_factory=set)

    async def run(self, ended: trio.Event) -> None:
        """Until stopped; returns when all is stored."""
        began_s, began_ms = trio.current_time(), now_ms()
        async with trio.open_nursery() as nursery:
            while not self.stop:
                elapsed_s = trio.current_time() - began_s
                due = round(elapsed_s * self.per_second)
                batch = [self._message(n, began_ms) for n in range(self.sent, due)]
                self.sent = due
                if batch:
                    # Beside each other, so that a partition that waits for its owner holds up only itself. They keep
                    # their order: each is in its lanes before the next begins.
                    nursery.start_soon(self._publish, batch, due)
                await trio.sleep(TICK_S)
            self.took_s = trio.current_time() - began_s
        ended.set()

    def _message(self, n: int, began_ms: int) -> tuple[str, dict[str, Any]]:
        id = self.ids[n % len(self.ids)]
        message = {"n": n // len(self.ids) + 1, "at_ms": began_ms + n * 1000 // self.per_second}
        if self.forget and id not in self._forgotten:
            self._forgotten.add(id)
            message["forget"] = True
        return id, message

    async def _publish(self, batch: list[tuple[str, Any]], due: int) -> None:
        self._publishing.add(due - len(batch))
        await self.client.publish_many(batch, deadline_s=DEADLINE_S)
        self._publishing.discard(due - len(batch))
        self.stored = min(self._publishing, default=self.sent)


@dataclass
class Probes:
    """One job of each partition is asked at a steady rate; keeps the longest wait, answered or not."""

    client: GridClient
    ids: list[str]
    longest_ms: float = 0.0
    failed: int = 0

    async def run(self, nursery: trio.Nursery) -> None:
        count = self.client.partition_count
        one_each = {partition_of(id, count): id for id in self.ids}
        for n, id in enumerate(one_each.values()):
            nursery.start_soon(self._probe, nursery, id, PROBE_EVERY_S * n / len(one_each))

    async def _probe(self, nursery: trio.Nursery, id: str, first_s: float) -> None:
        due_s = trio.current_time() + first_s
        while True:
            await trio.sleep_until(due_s)
            nursery.start_soon(self._ask, id, due_s)
            due_s += PROBE_EVERY_S

    async def _ask(self, id: str, due_s: float) -> None:
        try:
            await self.client.ask(id, {}, deadline_s=DEADLINE_S)
        except TenureError:
            self.failed += 1
        self.longest_ms = max(self.longest_ms, (trio.current_time() - due_s) * 1000)

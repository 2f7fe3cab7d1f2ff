"""A load whose books must balance whatever happens meanwhile. This file is also the application that is run."""

import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

import tenure
import tenure.jobs.lifecycle
from tenure.testing import Cluster

OUTSIDE = "TENURE_TEST_OUTSIDE"
"""Names a file outside of Tenure that accounts write to: what was said there can't be taken back."""
EVERY = 5


@tenure.job("ledger-account")
class Account(tenure.Job):
    """Takes numbered messages; passes every fifth on, and says so outside."""

    last: int = 0
    disordered: int = 0
    taken_ms: int = 0
    longest_ms: int = 0
    """The longest time between two messages."""

    def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> int:
        n = message["n"]
        self.disordered += n != self.last + 1
        self.last = n
        now_ms = time.time_ns() // 1_000_000
        if self.taken_ms:
            self.longest_ms = max(self.longest_ms, now_ms - self.taken_ms)
        self.taken_ms = now_ms
        if n % EVERY == 0:
            ctx.send(f"sink-{n // EVERY % SINKS}", {"from": ctx.id, "n": n // EVERY})
            ctx.wake_in(0.05)
            if path := os.environ.get(OUTSIDE):
                with open(path, "a") as file:
                    file.write(f"{ctx.id} {ctx.fence} {ctx.turn_id} {os.getpid()}\n")
        return n


@tenure.job("ledger-sink")
class Sink(tenure.Job):
    """Keeps how many came from each account and clock."""

    seen: dict[str, int] = {}
    total: int = 0

    def on_message(self, ctx: tenure.Context, message: dict[str, Any]) -> None:
        self.seen[message["from"]] = self.seen.get(message["from"], 0) + 1
        self.total += message["n"]


@tenure.job("ledger-clock")
class Clock(tenure.Job):
    """Has a timer at all times: each is set when the one before has gone off."""

    rung: int = 0
    doubled: int = 0
    due_ms: int = 0
    latest_ms: int = 0
    """The longest that one of them was late."""

    def on_start(self, ctx: tenure.Context) -> None:
        self._set(ctx)

    def on_timeout(self, ctx: tenure.Context) -> None:
        now_ms = time.time_ns() // 1_000_000
        self.doubled += not self.due_ms
        self.latest_ms = max(self.latest_ms, now_ms - self.due_ms)
        self.due_ms = 0
        self.rung += 1
        ctx.send(f"sink-{self.rung % SINKS}", {"from": ctx.id, "n": self.rung})
        if self.rung < RINGS:
            self._set(ctx)

    def _set(self, ctx: tenure.Context) -> None:
        self.due_ms = time.time_ns() // 1_000_000 + round(RING_EVERY_S * 1000)
        ctx.wake_in(RING_EVERY_S)


ACCOUNTS, SINKS, CLOCKS = 80, 7, 40
RING_EVERY_S, RINGS = 0.2, 30
ACCOUNT_IDS = [f"account-{n}" for n in range(ACCOUNTS)]
SINK_IDS = [f"sink-{n}" for n in range(SINKS)]
CLOCK_IDS = [f"clock-{n}" for n in range(CLOCKS)]


class Ledger:
    """Publishes at a steady pace for as long as the block lasts; then `check` says whether the books balance."""

    def __init__(self, client: tenure.Client, per_second: int = 1_000) -> None:
        self.client, self.per_second = client, per_second
        self.sent = dict.fromkeys(ACCOUNT_IDS, 0)
        self.acknowledged = dict(self.sent)
        self._stop = trio.Event()
        self._ended = trio.Event()

    async def open(self, nursery: trio.Nursery) -> None:
        await self.client.schedule_many([(Account, id, {}) for id in ACCOUNT_IDS])
        await self.client.schedule_many([(Sink, id, {}) for id in SINK_IDS])
        await self.client.schedule_many([(Clock, id, {}) for id in CLOCK_IDS])
        await self.client.ask(ACCOUNT_IDS[0], {"n": 1})
        self.sent[ACCOUNT_IDS[0]] = 1
        nursery.start_soon(self._publish)

    async def _publish(self) -> None:
        tick_s = len(ACCOUNT_IDS) / self.per_second
        while not self._stop.is_set():
            began_s = trio.current_time()
            for id in ACCOUNT_IDS:
                self.sent[id] += 1
            await self.client.publish_many([(id, {"n": self.sent[id]}) for id in ACCOUNT_IDS], timeout_s=60)
            self.acknowledged = dict(self.sent)
            await trio.sleep_until(began_s + tick_s)
        self._ended.set()

    async def close(self) -> None:
        """No more; returns when all that was sent is stored."""
        self._stop.set()
        await self._ended.wait()

    async def check(self) -> int:
        """Nothing lost, nothing twice, nothing out of order. Returns the longest pause of any account, in ms."""
        await self.close()
        accounts = await self._states(ACCOUNT_IDS)
        assert {id: account.last for id, account in accounts.items()} == self.sent
        assert {id: account.disordered for id, account in accounts.items() if account.disordered} == {}
        with trio.fail_after(30):  # timers have still to go off; what jobs sent to jobs is on its way a little longer
            while await self._sunk() != self._expected():  # noqa: ASYNC110  # no event tells
                await trio.sleep(0.1)
        clocks = (await self._states(CLOCK_IDS)).values()
        assert {(clock.rung, clock.doubled) for clock in clocks} == {(RINGS, 0)}
        return max([account.longest_ms for account in accounts.values()] + [clock.latest_ms for clock in clocks])

    async def _states(self, ids: list[str]) -> dict[str, Any]:
        """All asked for at once: where no event tells of a question, each takes a sweep."""
        found = dict[str, Any]()

        async def ask(id: str) -> None:
            found[id] = await self.client.state(id, timeout_s=60)

        async with trio.open_nursery() as nursery:
            for id in ids:
                nursery.start_soon(ask, id)
        return found

    def _expected(self) -> tuple[Counter[str], int]:
        passed = {id: n // EVERY for id, n in self.sent.items()} | dict.fromkeys(CLOCK_IDS, RINGS)
        return Counter({id: n for id, n in passed.items() if n}), sum(n * (n + 1) // 2 for n in passed.values())

    async def _sunk(self) -> tuple[Counter[str], int]:
        sinks = (await self._states(SINK_IDS)).values()
        seen: Counter[str] = Counter()
        for sink in sinks:
            seen.update(sink.seen)
        return seen, sum(sink.total for sink in sinks)


@asynccontextmanager
async def under_load(
    *, nodes: int = 2, members: int = 3, backups: int = 1
) -> AsyncIterator[tuple[Cluster, Ledger]]:
    """A cluster of real processes, and a load on it."""
    app = Path(__file__)
    async with (
        Cluster(nodes=nodes, members=members, grid="hazelcast", backups=backups, app=app) as cluster,
        cluster.client() as client,
        trio.open_nursery() as nursery,
    ):
        ledger = Ledger(client)
        await ledger.open(nursery)
        await trio.sleep(1)
        yield cluster, ledger
        nursery.cancel_scope.cancel()

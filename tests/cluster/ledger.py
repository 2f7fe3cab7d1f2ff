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
    """Keeps how many came from each account."""

    seen: dict[str, int] = {}
    total: int = 0

    def on_message(self, ctx: tenure.Context, message: dict[str, Any]) -> None:
        self.seen[message["from"]] = self.seen.get(message["from"], 0) + 1
        self.total += message["n"]


ACCOUNTS, SINKS = 80, 7
ACCOUNT_IDS = [f"account-{n}" for n in range(ACCOUNTS)]
SINK_IDS = [f"sink-{n}" for n in range(SINKS)]


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
        accounts = {id: await self.client.state(id, timeout_s=60) for id in ACCOUNT_IDS}
        assert {id: account.last for id, account in accounts.items()} == self.sent
        assert {id: account.disordered for id, account in accounts.items() if account.disordered} == {}
        with trio.fail_after(30):  # what jobs sent to jobs is on its way a little longer
            while await self._sunk() != self._expected():  # noqa: ASYNC110  # no event tells
                await trio.sleep(0.1)
        return max(account.longest_ms for account in accounts.values())

    def _expected(self) -> tuple[Counter[str], int]:
        passed = {id: n // EVERY for id, n in self.sent.items()}
        return Counter({id: n for id, n in passed.items() if n}), sum(n * (n + 1) // 2 for n in passed.values())

    async def _sunk(self) -> tuple[Counter[str], int]:
        sinks = [await self.client.state(id, timeout_s=60) for id in SINK_IDS]
        seen: Counter[str] = Counter()
        for sink in sinks:
            seen.update(sink.seen)
        return seen, sum(sink.total for sink in sinks)


@asynccontextmanager
async def under_load(*, nodes: int = 2, members: int = 3) -> AsyncIterator[tuple[Cluster, Ledger]]:
    """A cluster of real processes, and a load on it."""
    async with (
        Cluster(nodes=nodes, members=members, grid="hazelcast", app=Path(__file__)) as cluster,
        cluster.client() as client,
        trio.open_nursery() as nursery,
    ):
        ledger = Ledger(client)
        await ledger.open(nursery)
        await trio.sleep(1)
        yield cluster, ledger
        nursery.cancel_scope.cancel()

"""Orders to nodes and applications while publishers go on. This file is also the application that is run.

What is published meanwhile is applied once, or kept as a dead letter for those who ask: never neither, never both.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import tenure
from tenure.testing import Cluster

pytestmark = pytest.mark.cluster

SHOP = "orders-shop"
EVERY = 5
PER_SECOND = 500


@tenure.job("orders-account", application=SHOP)
class Account(tenure.Job):
    """Notes each number that it gets, passes every fifth on, and leaves its notes to the book."""

    seen: list[int] = []

    def on_message(self, ctx: tenure.Context, message: int) -> None:
        self.seen.append(message)
        if message % EVERY == 0:
            ctx.send(f"sink-{message // EVERY % SINKS}", f"{ctx.id} {message}")

    def on_stop(self, ctx: tenure.Context) -> None:
        ctx.send("book", {"account": ctx.id, "seen": self.seen})


@tenure.job("orders-sink", application=SHOP)
class Sink(tenure.Job):
    seen: list[str] = []

    def on_message(self, ctx: tenure.Context, message: str) -> None:
        self.seen.append(message)

    def on_stop(self, ctx: tenure.Context) -> None:
        ctx.send("book", {"sunk": self.seen})


@tenure.job("orders-book", application="orders-books")
class Book(tenure.Job):
    """What is left of the shop."""

    accounts: dict[str, list[int]] = {}
    sunk: list[str] = []

    def on_message(self, ctx: tenure.Context, message: dict[str, Any]) -> None:
        if "sunk" in message:
            self.sunk += message["sunk"]
        else:
            assert message["account"] not in self.accounts
            self.accounts[message["account"]] = message["seen"]


ACCOUNTS, SINKS = 40, 3
IDS = [f"account-{n}" for n in range(ACCOUNTS)]
SINK_IDS = [f"sink-{n}" for n in range(SINKS)]


async def test_orders_under_load() -> None:
    sent = dict.fromkeys(IDS, 0)
    app = Path(__file__)
    async with (
        Cluster(nodes=3, members=2, grid="hazelcast", app=app) as cluster,
        cluster.client() as client,
        cluster.client() as publisher,
    ):
        await client.schedule_many([(Account, id, {}) for id in IDS] + [(Sink, id, {}) for id in SINK_IDS])
        await client.schedule(Book, id="book")
        async with publishing(publisher, sent):
            await trio.sleep(1)
            first = await client.drain("node-0")
            assert await owned(client, first) == 0
            assert await client.undrain("node-0") == first
            with trio.fail_after(20):
                while not await owned(client, first):  # noqa: ASYNC110  # no event tells
                    await trio.sleep(0.1)
            await client.stop("node-1", drain=True)
            await left(cluster, [0, 2])
            assert first in await client.shutdown(timeout_s=20)
            await left(cluster, [])
            so_far = sum(sent.values())
            await trio.sleep(1)
            assert await cluster.add_node() == 3
            with trio.fail_after(20):
                while sum(sent.values()) < so_far + PER_SECOND:  # noqa: ASYNC110  # it goes on
                    await trio.sleep(0.1)
        accounts = {id: (await client.state(id)).seen for id in IDS}
        letters = await client.dead_letters()
        assert {letter["reason"] for letter in letters} == {"ApplicationClosed"}
        assert all(seen == sorted(seen) for seen in accounts.values()), "in the order in which they were sent"
        check(sent, accounts, letters)
        assert await client.replay(letters) == len(letters)
        await client.wait(SHOP)
        assert await client.dead_letters() == []
        accounts = {id: (await client.state(id)).seen for id in IDS}
        check(sent, accounts, [])
        check_sunk(accounts, [line for id in SINK_IDS for line in (await client.state(id)).seen])
        async with publishing(publisher, sent):
            await trio.sleep(1)
            assert await client.undeploy(SHOP, timeout_s=20) == ACCOUNTS + SINKS
            await trio.sleep(0.5)
        await client.wait("orders-books")
        book = await client.state("book")
        letters = await client.dead_letters()
        assert {letter["reason"] for letter in letters} == {"ApplicationClosed", "JobRemoved"}
        check(sent, book.accounts, letters)
        check_sunk(book.accounts, book.sunk)


async def test_a_shutdown_with_a_snapshot_under_load_goes_on_elsewhere(tmp_path: Path) -> None:
    """What was acknowledged is where the snapshot is restored, once; what was not is named."""
    app, place = Path(__file__), str(tmp_path / "place")
    sent, unknown = dict.fromkeys(IDS, 0), dict[str, set[int]]()
    async with (
        Cluster(nodes=3, members=2, grid="hazelcast", app=app) as cluster,
        cluster.client() as client,
        cluster.client() as publisher,
    ):
        await client.schedule_many([(Account, id, {}) for id in IDS] + [(Sink, id, {}) for id in SINK_IDS])
        async with publishing(publisher, sent, unknown, timeout_s=2):
            await trio.sleep(2)
            ended = await client.shutdown(snapshot=place, timeout_s=60)
            assert len(ended["nodes"]) == 3
            await left(cluster, [])
            await trio.sleep(4)
        assert set(unknown) == set(IDS), "who publishes later is told"
    async with (
        Cluster(nodes=2, members=1, grid="hazelcast", app=app, partitions=61) as cluster,
        cluster.client() as client,
    ):
        assert (await client.restore(place))["jobs"] == ended["snapshot"]["jobs"] == ACCOUNTS + SINKS
        await client.wait(SHOP)
        accounts = {id: (await client.state(id)).seen for id in IDS}
        letters = await client.dead_letters()
        assert {letter["reason"] for letter in letters} == {"ApplicationClosed"}
        check(sent, accounts, letters, unknown)
        assert await client.replay(letters) == len(letters)
        await client.wait(SHOP)
        accounts = {id: (await client.state(id)).seen for id in IDS}
        check(sent, accounts, [], unknown)
        check_sunk(accounts, [line for id in SINK_IDS for line in (await client.state(id)).seen])


@asynccontextmanager
async def publishing(
    client: tenure.Client, sent: dict[str, int], unknown: dict[str, set[int]] | None = None, timeout_s: float = 60
) -> AsyncIterator[None]:
    """Publishes at a steady pace as long as this is open; at its end, all of `sent` is acknowledged, or `unknown`, if
    that may be."""
    go_on = True

    async def publish() -> None:
        while go_on:
            began_s = trio.current_time()
            for id in IDS:
                sent[id] += 1
            try:
                await client.publish_many(list(sent.items()), timeout_s=timeout_s)
            except tenure.Backlogged as error:
                if unknown is None:
                    raise
                for id, n in error.unstored:
                    unknown.setdefault(str(id), set()).add(n)
            await trio.sleep_until(began_s + ACCOUNTS / PER_SECOND)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish)
        yield
        go_on = False


def check(
    sent: dict[str, int],
    accounts: dict[str, list[int]],
    letters: Iterable[Any],
    unknown: dict[str, set[int]] | None = None,
) -> None:
    """Nothing is lost, nothing doubled; what is `unknown` may be missing."""
    missing = {id: (unknown or {}).get(id, set()) for id in IDS}
    buried: dict[str, list[int]] = {id: [] for id in IDS}
    for letter in letters:
        buried[letter["to"]].append(letter["message"])
    counted = {id: Counter(accounts[id] + buried[id]) for id in IDS}
    lost = {id: set(range(1, sent[id] + 1)) - set(counted[id]) - missing[id] for id in IDS}
    assert lost == {id: set() for id in IDS}, "lost"
    assert {id: [n for n, times in counted[id].items() if times > 1] for id in IDS} == {id: [] for id in IDS}, "doubled"


def check_sunk(accounts: dict[str, list[int]], sunk: list[str]) -> None:
    """Likewise for what jobs sent to jobs."""
    passed = [f"{id} {n}" for id, seen in accounts.items() for n in seen if n % EVERY == 0]
    assert sorted(sunk) == sorted(passed)


async def owned(client: tenure.Client, node: str) -> int:
    return sum(partition["node"] == node for partition in await client.partitions())


async def left(cluster: Cluster, nodes: list[int]) -> None:
    """Until these alone are left: who takes its leave ends a moment later."""
    with trio.fail_after(10):
        while await cluster.nodes() != nodes:  # noqa: ASYNC110  # a process sets no event
            await trio.sleep(0.05)

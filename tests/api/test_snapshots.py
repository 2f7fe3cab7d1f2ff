"""Snapshots and restoring, as users see them: what is in them, what survives, and what is refused."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import tenure
from tenure.testing import Cluster

SERIAL = itertools.count()


@tenure.job("api-purse")
class Purse(tenure.Job):
    """Passes money on, in small amounts."""

    money: int = 100
    order: list[int] = []

    def on_message(self, ctx: tenure.Context, message: dict[str, Any]) -> int:
        self.money += message.get("get", 0)
        if (n := message.get("n")) is not None:
            self.order.append(n)
        if (to := message.get("pass_to")) and self.money:
            self.money -= 1
            hops = message["hops"] - 1
            onward = {"get": 1} | ({"pass_to": message["back"], "back": ctx.id, "hops": hops} if hops else {})
            ctx.send(to, onward)
        return self.money


@pytest.fixture
def place() -> str:
    return f"memory:{next(SERIAL)}"


@asynccontextmanager
async def another(**options: Any) -> AsyncIterator[tuple[Cluster, tenure.Client]]:
    async with Cluster(**options) as cluster, cluster.client() as client:
        yield cluster, client


PURSES = [f"purse{n}" for n in range(40)]


async def busy_purses(client: tenure.Client, rounds: int) -> None:
    for n in range(rounds):
        a, b = PURSES[n % len(PURSES)], PURSES[(7 * n + 3) % len(PURSES)]
        await client.publish(a, {"pass_to": b, "back": a, "hops": 30})
        await trio.sleep(0.001)


async def total(client: tenure.Client) -> int:
    await trio.sleep(5)
    return sum([(await client.state(id)).money for id in PURSES])


@pytest.mark.parametrize("partitions", [16, 5, 31])
async def test_a_snapshot_under_load_is_a_consistent_cut(in_virtual_time: None, place: str, partitions: int) -> None:
    async with another(nodes=2) as (_, client):
        await client.schedule_many([("api-purse", id, {}) for id in PURSES])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(busy_purses, client, 400)
            await trio.sleep(0.3)
            taken = await client.snapshot(place)
            await client.snapshot(place)
        assert taken["jobs"] == len(PURSES)
        assert await total(client) == 100 * len(PURSES)
        names = [snapshot["name"] for snapshot in await client.snapshots(place)]
    assert names[0] == taken["name"]
    for name in names:
        async with another(nodes=2, partitions=partitions) as (_, client):
            restored = await client.restore(place, name=name)
            assert (restored["jobs"], restored["partition_count"]) == (len(PURSES), partitions)
            assert await total(client) == 100 * len(PURSES)

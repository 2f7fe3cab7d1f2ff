"""A client whose connection was closed for good, and not by itself: nobody waits for what can't come."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import pytest
import trio

import tenure
from tenure.scheduler.client import GridClient, open_client
from tenure.scheduler.errors import ClientClosed
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.grid.port import Closed, OwnershipEvent
from tenure.scheduler.jobtype import JobType, Registry


class Plain(tenure.Job):
    """Takes what comes."""

    def on_message(self, ctx: tenure.Context, message: Any) -> None:
        pass


TYPES = Registry(JobType("plain", Plain))
CALLS: dict[str, Callable[[GridClient], Awaitable[Any]]] = {
    "publish": lambda client: client.publish("a", 1),
    "publish strict": lambda client: client.publish("a", 1, strict=True),
    "ask": lambda client: client.ask("a", 1),
    "schedule": lambda client: client.defining.schedule("plain", "a", {}),
    "unschedule": lambda client: client.defining.want("a", "removed"),
    "describe": lambda client: client.directory.describe("a"),
    "state": lambda client: client.state("a"),
}
SETTINGS = tenure.ClientSettings(publish_deadline_s=1000.0, ask_deadline_s=1000.0)


@pytest.fixture
async def client(in_virtual_time: None) -> AsyncIterator[GridClient]:
    grid = MemoryCluster(partitions=4).connect()
    async with open_client(grid, registry=TYPES, settings=SETTINGS, now_ms=lambda: 1_000_000) as client:
        yield client


def close(client: GridClient) -> None:
    """As Hazelcast's client does, when the cluster has come back with another number of partitions."""

    async def closed(*args: object, **options: object) -> NoReturn:
        await trio.lowlevel.checkpoint()
        raise Closed("this connection is closed for good; open another")

    grid: Any = client.grid
    for name in ("get", "get_all", "set", "set_together", "put_if_absent", "replace_if_same", "delete"):
        setattr(grid, name, closed)
    grid.notice(OwnershipEvent.CLOSED)


@pytest.mark.parametrize("name", CALLS)
async def test_each_call_says_at_once_to_open_another(client: GridClient, name: str) -> None:
    close(client)
    await trio.sleep(0.1)
    began_s = trio.current_time()
    for _ in range(2):
        with pytest.raises(ClientClosed, match=r"closed for good.*Open another client"):
            await CALLS[name](client)
    assert trio.current_time() - began_s < 2


@pytest.mark.parametrize("name", ["ask", "describe", "state", "schedule"])
async def test_who_waits_is_told_at_once(client: GridClient, name: str) -> None:
    told_s: list[float] = []

    async def wait() -> None:
        with pytest.raises(ClientClosed, match="Open another client"):
            await CALLS[name](client)
        told_s.append(trio.current_time())

    if name == "schedule":
        client.allegiance.doubt()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(0 if name == "schedule" else 10)
        assert not told_s
        close(client)
        closed_s = trio.current_time()
    assert told_s[0] - closed_s < 2

"""Who hears that most members are gone, and is refused, tries those that were there before."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from tenure.scheduler.grid.hazelcast import sides
from tenure.scheduler.grid.hazelcast.client import TenureClient
from tenure.scheduler.grid.hazelcast.settings import HazelcastSettings
from tenure.scheduler.grid.hazelcast.sides import Sides

SETTINGS = HazelcastSettings(addresses=("given:5701", "10.0.0.1:5701"))


def member(number: int, quorum: str = "2") -> Any:
    attributes = {"tenure.quorum": quorum} if quorum else None
    address = SimpleNamespace(host=f"10.0.0.{number}", port=5701)
    return SimpleNamespace(uuid=f"member {number}", address=address, attributes=attributes)


class Client:
    """Hears of members what a test says; `turned` are the addresses that were tried."""

    def __init__(self, *members: Any) -> None:
        self.members = list(members)
        self.turned: list[str] = []
        self.lets_in: Callable[[str], bool] = lambda _host: False
        self.cluster_service = SimpleNamespace(get_members=lambda: list(self.members))

    def turn_to(self, host: str, port: int) -> bool:
        assert port == 5701
        self.turned.append(host)
        return self.lets_in(host)


async def in_place(blocks: Callable[..., Any], *args: Any) -> Any:
    """A thread would race with virtual time."""
    await trio.lowlevel.checkpoint()
    return blocks(*args)


def look(client: Any, nursery: trio.Nursery) -> None:
    nursery.start_soon(Sides(client, SETTINGS, in_place).run)


async def test_all_that_were_there_are_tried_in_turn_and_those_that_were_given(nursery: trio.Nursery) -> None:
    client = Client(member(1), member(2), member(3))
    look(client, nursery)
    await trio.sleep(5.5)
    client.members = [member(1)]
    await trio.sleep(6)
    assert client.turned == ["10.0.0.2", "10.0.0.3", "given", "10.0.0.2", "10.0.0.3"]


async def test_who_lets_us_in_ends_the_search(nursery: trio.Nursery, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", logger=sides.__name__)  # commands, which other tests run, hush it
    client = Client(member(1), member(2), member(3))

    def lets_in(host: str) -> bool:
        if host == "10.0.0.3":
            client.members = [member(2), member(3)]
            return True
        return False

    client.lets_in = lets_in
    look(client, nursery)
    await trio.sleep(5.5)
    client.members = [member(1)]
    await trio.sleep(20)
    assert client.turned == ["10.0.0.2", "10.0.0.3"]
    # Other clients of this process may log something at the same time.
    first, second = (record.getMessage() for record in caplog.records if record.name == sides.__name__)
    assert first == (
        "Of the members of cluster tenure 1 can be seen, and fewer than 2 refuse calls: "
        "trying 10.0.0.2:5701, 10.0.0.3:5701, given:5701"
    )
    assert second == "Left 10.0.0.1:5701 of cluster tenure for what the member at 10.0.0.3 sees"


@pytest.mark.parametrize("quorum", ["0", "", "much"])
async def test_members_without_protection_are_not_left(nursery: trio.Nursery, quorum: str) -> None:
    client = Client(member(1, quorum), member(2, quorum))
    look(client, nursery)
    await trio.sleep(5.5)
    client.members = [member(1, quorum)]
    await trio.sleep(60)
    client.members = []
    await trio.sleep(60)
    assert not client.turned


async def test_few_for_a_moment_are_not_left(nursery: trio.Nursery) -> None:
    client = Client(member(1), member(2))
    look(client, nursery)
    await trio.sleep(0.5)
    for _ in range(20):
        client.members = [member(1)]
        await trio.sleep(0.9)
        client.members = [member(1), member(2)]
        await trio.sleep(1.1)
    assert not client.turned


class Connected:
    """A connection, and what is said when it is closed."""

    live = True

    def __init__(self, uuid: str, closed: list[str]) -> None:
        self.remote_uuid, self._closed = uuid, closed

    def close_connection(self, reason: str, _cause: object) -> None:
        assert "too few" in reason
        self._closed.append(self.remote_uuid)


def client_of(found: Any, closed: list[str]) -> Any:
    """A client that hears of two members from the first, and finds `found` at the address that it is to try."""
    client: Any = object.__new__(TenureClient)
    one, two = Connected("one", closed), Connected("two", closed)
    client.failures = {}
    client.settings = SETTINGS
    client._cluster_view_listener = SimpleNamespace(_listener_added_connection=one)
    client._internal_cluster_service = SimpleNamespace()
    client._cluster_service = SimpleNamespace(
        get_members=lambda: [SimpleNamespace(uuid="one"), SimpleNamespace(uuid="two")]
    )

    def get(address: Any) -> Any:
        assert (address.host, address.port) == ("10.0.0.3", 5701)
        return SimpleNamespace(result=found)

    connections = {"one": one, "two": two, "three": Connected("three", closed)}
    client._connection_manager = SimpleNamespace(active_connections=connections, _get_or_connect_to_address=get)
    return client


def test_who_has_told_us_so_far_is_left_last() -> None:
    closed: list[str] = []
    assert client_of(lambda: Connected("three", []), closed).turn_to("10.0.0.3", 5701)
    assert closed == ["two", "one"]


def test_nobody_is_left_for_one_that_is_known_or_does_not_let_us_in() -> None:
    closed: list[str] = []

    def refused() -> Any:
        raise OSError(111, "Connection refused")

    assert not client_of(lambda: Connected("two", []), closed).turn_to("10.0.0.3", 5701)
    assert not client_of(refused, closed).turn_to("10.0.0.3", 5701)
    assert not closed

"""A name stands for all its addresses, and what is lost with a connection is not kept."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tenure.scheduler.grid.hazelcast.addresses import Addresses
from tenure.scheduler.grid.hazelcast.client import TenureClient
from tenure.scheduler.grid.hazelcast.settings import HazelcastSettings

NAMES = {"members.test": ["127.0.0.2", "127.0.0.3", "127.0.0.2"], "one.test": ["127.0.0.4"]}


@pytest.fixture
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, *_: Any) -> list[Any]:
        if host not in NAMES:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in NAMES[host]]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@contextmanager
def connected(*addresses: str) -> Iterator[TenureClient]:
    client = TenureClient(HazelcastSettings(addresses=addresses), lambda _kind, _what: None)
    try:
        yield client
    finally:
        client.shutdown()


@pytest.mark.usefixtures("_names")
def test_a_name_is_all_its_addresses_and_one_without_more_stays_a_name() -> None:
    addresses = Addresses(("one.test:5701", "members.test:5702", "nobody.test:5703", "members.test:5702"))
    found, none = addresses.load_addresses()
    assert [(address.host, address.port) for address in found] == [
        ("one.test", 5701),
        ("127.0.0.2", 5702),
        ("127.0.0.3", 5702),
        ("nobody.test", 5703),
    ]
    assert not none
    assert addresses.count == 4


@pytest.mark.usefixtures("_names")
def test_each_member_behind_a_name_is_tried() -> None:
    with ExitStack() as stack:
        first = stack.enter_context(socket.create_server(("127.0.0.2", 0)))
        port = first.getsockname()[1]
        second = stack.enter_context(socket.create_server(("127.0.0.3", port)))
        stack.enter_context(connected(f"members.test:{port}"))
        for server in (first, second):
            server.settimeout(20)
            tried, _ = server.accept()
            tried.close()


def test_where_no_thread_can_be_started_it_connects_later(monkeypatch: pytest.MonkeyPatch) -> None:
    start, failed = threading.Thread.start, 0

    def fails_at_first(thread: threading.Thread) -> None:
        nonlocal failed
        if thread.name == "hazelcast_async_connection" and failed < 3:
            failed += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fails_at_first)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        with connected(f"127.0.0.1:{server.getsockname()[1]}"):
            tried, _ = server.accept()
            tried.close()
    assert failed == 3


class Connection:
    live = True

    def send_message(self, _message: Any) -> bool:
        return True


def test_a_connection_that_told_of_members_is_forgotten_when_it_is_lost() -> None:
    with connected("127.0.0.1:1") as client:
        view: Any = client._cluster_view_listener
        handlers = client._listener_service._event_handlers
        for _ in range(10):
            connection = Connection()
            view._try_register(connection)
            assert len(handlers) == 1
            for _opened, closed in client._connection_manager._connection_listeners:
                if closed is not None:
                    closed(connection)
            assert not handlers

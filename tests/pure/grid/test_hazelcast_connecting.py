"""Why there is no connection is said also where the reactor finds out before the one that connects."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from tenure.scheduler.grid.hazelcast.client import Config, TargetDisconnectedError, _reason
from tenure.scheduler.grid.hazelcast.reactor import AsyncoreReactor, _Connection
from tenure.scheduler.grid.hazelcast.settings import HazelcastSettings

REFUSED = "[Errno 111] Connection refused"


class QuicklyClosed(_Connection):
    """The reactor has closed it when the call that connects comes back."""

    def connect(self, address: Any) -> None:
        super().connect(address)
        self.close_connection(REFUSED, None)  # type: ignore[no-untyped-call]


def test_the_reactors_reason_counts_when_it_has_closed_the_socket_already() -> None:
    manager = SimpleNamespace(live=False, on_connection_close=lambda _connection: None)
    loop: Any = None
    reactor = AsyncoreReactor()  # type: ignore[no-untyped-call]
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = SimpleNamespace(host="127.0.0.1", port=server.getsockname()[1])
        with pytest.raises(OSError, match="refused") as raised:
            QuicklyClosed(loop, None, reactor, manager, 1, address, Config(), lambda _message: None)
    assert _reason(raised.value, HazelcastSettings()) == "nothing listens there"
    reactor._loop.waker.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TargetDisconnectedError("TargetDisconnectedError"), "no connection came about (is the address right, and"),
        (TargetDisconnectedError(""), "no connection came about"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError(101, "Network is unreachable"), "Network is unreachable"),
        (ValueError(""), "ValueError"),
        (ValueError("odd"), "ValueError: odd"),
    ],
)
def test_why_there_is_none_is_said_in_words(error: Exception, said: str) -> None:
    assert _reason(error, HazelcastSettings()).startswith(said)

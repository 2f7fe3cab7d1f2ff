"""Requests leave together: one system call for each connection at the end of a pass, and the reactor's help where
the network takes no more."""

import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from tenure.scheduler.grid.hazelcast.outgoing import give_up
from tenure.scheduler.grid.hazelcast.reactor import TOGETHER, _Connection, _Loop
from tenure.scheduler.grid.hazelcast.wire import Requests
from tenure.scheduler.grid.hazelcast.writing import Writing

REQUESTS = Requests("map", 271)


class Line:
    """A connection as it is once somebody has adopted it, with the member's end of it."""

    def __init__(self, fill: Any) -> None:
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.theirs.setblocking(False)
        self.wakes = 0
        self.pending: dict[int, Any] = {}
        """The client's calls that wait for an answer."""
        connection = object.__new__(_Connection)
        for name, value in {
            "_id": 1,
            "_write_queue": deque(),
            "_writing": threading.Lock(),
            "_reactor": SimpleNamespace(bytes_sent=0),
            "_loop": SimpleNamespace(sleeping=True),
            "_wake": self._wake,
            "_fill": fill,
            "_adopter": threading.get_ident(),
            "adopted": True,
            "live": True,
            "_connection_manager": SimpleNamespace(_invocation_service=SimpleNamespace(_pending=self.pending)),
            "socket": ours,
        }.items():
            connection.__dict__[name] = value
        self.connection: Any = connection
        self._ours = ours

    def _wake(self) -> None:
        self.wakes += 1

    def received(self) -> bytes:
        try:
            return self.theirs.recv(2**20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line(lambda _connection: None)
    yield line
    line.close()


async def test_what_one_pass_writes_leaves_together_at_its_end() -> None:
    writing = Writing()
    line = Line(writing.fill)
    sends = 0
    send = line.connection._send

    def counted(data: bytes) -> int:
        nonlocal sends
        sends += 1
        sent: int = send(data)
        return sent

    line.connection._send = counted
    with writing.at_ends():
        for n in range(5):
            line.connection._write(b"%d" % n)
        assert line.received() == b""
        await trio.lowlevel.checkpoint()
        assert line.received() == b"01234"
        assert sends == 1
        await trio.sleep(0.01)
        assert sends == 1, "nothing was written, and so nothing sent"
    assert line.wakes == 0
    line.close()


async def test_a_connection_that_fails_keeps_nobody_from_writing() -> None:
    class Broken:
        def flush(self) -> None:
            raise ValueError("broken")

    writing = Writing()
    line = Line(writing.fill)
    with writing.at_ends():
        writing.fill(Broken())
        line.connection._write(b"a")
        await trio.lowlevel.checkpoint()
        line.connection._write(b"b")
        await trio.lowlevel.checkpoint()
        assert line.received() == b"ab"
    line.close()


def test_much_is_sent_before_the_end(line: Line) -> None:
    for _ in range(TOGETHER - 1):
        line.connection._write(b"x")
    assert line.received() == b""
    line.connection._write(b"x")
    assert line.received() == b"x" * TOGETHER


def test_what_the_network_does_not_take_is_the_reactors_in_order(line: Line) -> None:
    size = 2**22
    line.connection._write(b"a" * size)
    line.connection.flush()
    line.connection._write(b"b")
    assert line.wakes == 1
    got = b""
    while len(got) < size + 1:
        got += line.received()
        line.connection.flush()  # as the reactor would, when there is room
    assert got == b"a" * size + b"b"


def test_what_waits_for_a_member_that_takes_nothing_costs_no_more_the_more_it_is(line: Line) -> None:
    """64 MiB waited for a frozen member, and were put together anew by each pass: 140 ms."""
    touched = 0

    def full(data: bytes) -> int:
        nonlocal touched
        touched = max(touched, len(data))
        return 0

    line.connection._send = full
    for _ in range(64):
        line.connection._write(bytes(2**20))
        line.connection.flush()
    line.connection._write(b"and one more")
    line.connection.flush()
    assert touched <= 2**20
    del line.connection._send
    left = 2**26 + len(b"and one more")
    tries = 0
    while left:
        tries += 1
        line.connection.flush()
        left -= len(line.received())
    assert tries < 2000


@pytest.mark.parametrize("seed", range(5))
def test_all_is_sent_once_and_in_order_however_little_the_network_takes(line: Line, seed: int) -> None:
    random = Random(seed)
    sent = bytearray()

    def some(data: bytes) -> int:
        taken = min(len(data), random.choice((0, 1, 1000, 10**6)))
        sent.extend(data[:taken])
        return taken

    line.connection._send = line.connection.send = some
    queued = bytearray()
    for _ in range(300):
        data = random.randbytes(random.choice((1, 100, 100_000, 600_000)))
        queued += data
        line.connection._write(data)
        random.choice((line.connection.flush, line.connection.handle_write, lambda: None))()
    while line.connection.writable():
        random.choice((line.connection.flush, line.connection.handle_write))()
    assert sent == queued


def test_what_nobody_waits_for_any_more_is_not_sent_unless_it_has_begun(line: Line) -> None:
    messages = [REQUESTS.set(3, b"key%d" % n, bytes(2**20), 0) for n in range(3)]
    for n, message in enumerate(messages):
        message.set_correlation_id(n)
        line.pending[n] = message
        assert line.connection.send_message(message)
    first, second, third = (bytes(message.buf) for message in messages)
    line.connection.flush()
    begun = line.received()
    assert 0 < len(begun) < len(first)
    number = messages[1].get_correlation_id()
    give_up(messages[0])
    give_up(messages[1])
    got = begun
    while len(got) < len(first) + len(third):
        line.connection.flush()
        got += line.received()
    line.connection.flush()
    assert got + line.received() == first + third
    assert second not in got
    assert messages[1].get_correlation_id() == number, "by which the client knows it"
    assert list(line.pending) == [0, 2], "no answer will come to what was not sent"


def test_a_connection_is_nothing_to_look_at_before_it_is_shut_down(line: Line) -> None:
    """The reactor logged hundreds of times that it was at its end, until it was gone."""
    shut: list[bool] = []

    class Socket:
        def shutdown(self, _how: int) -> None:
            shut.append(1 in line.connection._map)

        def close(self) -> None:
            shut.append(1 in line.connection._map)

    line.connection.__dict__.update(socket=Socket(), _fileno=1, _map={1: line.connection})
    line.connection.close()
    assert shut == [False, False]


def test_a_connection_that_is_closed_keeps_nothing_that_was_to_be_sent(line: Line) -> None:
    line.connection._write(bytes(2**24))
    line.connection.flush()
    line.connection._map = {}
    line.connection._fileno = None
    line.connection.close()
    assert not line.connection._write_queue
    line.connection.flush()


def test_while_the_reactor_writes_nobody_else_does(line: Line) -> None:
    with line.connection._writing:
        line.connection._write(b"a")
        line.connection.flush()
        assert line.received() == b""
        assert line.wakes == 1, "it is told, should it have gone to sleep meanwhile"
    line.connection.flush()
    assert line.received() == b"a"


def test_other_threads_wake_the_reactor(line: Line) -> None:
    thread = threading.Thread(target=line.connection._write, args=(b"a",))
    thread.start()
    thread.join()
    assert line.wakes == 1
    assert line.received() == b""


def test_the_reactor_sleeps_until_its_next_timer_but_not_for_long() -> None:
    timers: list[Any] = []
    new_timers: deque[Any] = deque()
    loop = _Loop({}, timers, new_timers)
    began_s = time.monotonic()
    timers.append((time.time() + 0.03, None))
    loop.run()
    assert 0.02 <= time.monotonic() - began_s < 0.09
    timers.clear()
    began_s = time.monotonic()
    loop.run()
    assert 0.09 <= time.monotonic() - began_s < 5
    new_timers.append((time.time() + 60, None))
    began_s = time.monotonic()
    loop.run()
    assert time.monotonic() - began_s < 0.09, "it is to be sorted in first"

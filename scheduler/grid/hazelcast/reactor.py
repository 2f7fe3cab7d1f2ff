"""The client's network loop, made quicker for one caller at a time; what it does stays the same.

The client hands each request to its reactor thread, which wakes, builds its set of sockets anew and writes: two
wake-ups and as many system calls before anything leaves. Here the calling thread writes by itself when the line
is idle, and the set is built once.

    caller:   line idle? ── yes ──> send          ── no ──> queue, wake the reactor if it sleeps
    reactor:  sleeping ──> ready sockets ──> read all, write what is queued ──> sleeping
"""

import itertools
import select
import struct
import threading
import time
from collections.abc import Sized
from typing import Any, cast

from hazelcast.protocol.client_message import Frame, InboundMessage
from hazelcast.reactor import AsyncoreConnection, AsyncoreReactor, asyncore

__all__ = ["Reader", "Serials", "quicken"]

IDLE_MAX = 3
"""With so few requests on their way, the next is not worth waking another thread for."""
_POLL_MS = 10
"""The client's own: its timers are looked at so often."""
_HEADER = struct.Struct("<iH")
"""A frame's length, itself included, and its flags."""
_FINAL = 1 << 13


def quicken(reactor: AsyncoreReactor, pending: Sized) -> None:
    """To be called before the reactor starts. `pending`: the requests that are on their way."""
    loop, its_loop = _Loop(reactor.map), cast(Any, reactor._loop)
    its_loop.run_loop = loop.run
    wake = its_loop.wake_loop

    def connection_factory(*args: Any) -> AsyncoreConnection:
        return _Connection(loop, wake, pending, reactor, *args)

    reactor.connection_factory = connection_factory  # type: ignore[method-assign]


class _Loop:
    """One turn of the reactor, with a set of sockets that is kept from turn to turn."""

    def __init__(self, map: dict[int, Any]) -> None:
        self.sleeping = False
        """Set before the queues are looked at, so that whoever fills one later sees that a wake-up is needed."""
        self._map = map
        self._poll = select.poll()
        self._flags: dict[int, int] = {}

    def run(self) -> None:
        self.sleeping = True
        self._refresh()
        ready = self._poll.poll(_POLL_MS)
        self.sleeping = False
        for fd, flags in ready:
            if (dispatcher := self._map.get(fd)) is not None:
                asyncore.readwrite(dispatcher, flags)

    def _refresh(self) -> None:
        known, poll = self._flags, self._poll
        dispatchers = list(self._map.items())
        for fd, dispatcher in dispatchers:
            flags = select.POLLIN | select.POLLPRI if dispatcher.readable() else 0
            if dispatcher.writable():
                flags |= select.POLLOUT
            if known.get(fd) != flags:
                known[fd] = flags
                poll.register(fd, flags)
        if len(known) > len(dispatchers):
            for fd in known.keys() - self._map.keys():
                del known[fd]
                poll.unregister(fd)


class _Connection(AsyncoreConnection):
    """Requests may be written by the thread that makes them."""

    def __init__(self, loop: _Loop, wake: Any, pending: Sized, *args: Any) -> None:
        self._loop, self._wake, self._pending = loop, wake, pending
        self._writing = threading.Lock()
        super().__init__(*args)  # type: ignore[no-untyped-call]
        self._reader = Reader(self._builder)  # type: ignore[assignment]

    def handle_write(self) -> None:
        with self._writing:
            super().handle_write()  # type: ignore[no-untyped-call]

    def _write(self, buf: bytes) -> None:
        queue = self._write_queue
        if not queue and self._is_idle() and self._writing.acquire(blocking=False):
            try:
                # The reactor may have slept, woken and written meanwhile; but nobody writes now, and what is queued
                # goes first.
                if not queue:
                    sent = self._send(buf)
                    if sent == len(buf):
                        return
                    buf = buf[sent:]
                    queue.appendleft(buf)
                else:
                    queue.append(buf)
            finally:
                self._writing.release()
        else:
            queue.append(buf)
        if self._loop.sleeping:
            self._wake()

    def _is_idle(self) -> bool:
        # With more on its way, what the reactor sends together costs members and ourselves less.
        return self._loop.sleeping and len(self._pending) <= IDLE_MAX and bool(self.sent_protocol_bytes)

    def _send(self, buf: bytes) -> int:
        try:
            sent: int = cast(Any, self.socket).send(buf)
        except (OSError, AttributeError):
            return 0  # full, or broken: the reactor will find out, and knows what to do
        self.last_write_time = time.time()  # type: ignore[assignment]  # the client begins with 0
        self._reactor.bytes_sent += sent
        return sent


class Reader:
    """Takes a connection's bytes apart into frames, and puts these together into messages."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self._bytes: bytes | bytearray = b""
        """What came and is not yet read."""
        self._wanted = _HEADER.size
        """With fewer bytes than these there is nothing to be read."""
        self._message: InboundMessage | None = None

    @property
    def length(self) -> int:
        """How many bytes are not yet read."""
        return len(self._bytes)

    def read(self, data: bytes) -> None:
        """These came."""
        if not self._bytes:
            self._bytes = data
        elif isinstance(self._bytes, bytearray):
            self._bytes += data
        else:
            self._bytes = bytearray(self._bytes) + data

    def process(self) -> None:
        """Pass on every message that is whole."""
        data, at, end = self._bytes, 0, len(self._bytes)
        if end < self._wanted:
            return
        self._wanted = _HEADER.size
        try:
            while end - at >= _HEADER.size:
                size, flags = _HEADER.unpack_from(data, at)
                if end - at < size:
                    self._wanted = size
                    return
                frame = Frame(bytes(data[at + _HEADER.size : at + size]), flags)
                at += size
                message = self._message
                if message is None:
                    message = self._message = InboundMessage(frame)
                else:
                    message.add_frame(frame)
                if flags & _FINAL:
                    self._message = None
                    self._builder.on_message(message)
        finally:
            self._bytes = data[at:] if at < end else b""


class Serials:
    """Numbers for requests: as the client's own, without its lock."""

    def __init__(self) -> None:
        self.get_and_increment = itertools.count(1).__next__

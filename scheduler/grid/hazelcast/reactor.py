"""The client's network loop, made quicker for one caller at a time; what it does stays the same.

The client hands each request to its reactor thread, which wakes, builds its set of sockets anew and writes; answers
come by way of it too. Here the set is built once, and a connection may be *adopted*: then somebody else reads it and
writes to it (see `reading`, `writing`).

    adopter:  queue ──> at the end of its pass, or when much is queued ──> send all together (see `writing`)
    others:   queue ──> wake the reactor if it sleeps
    reactor:  sleeping ──> ready sockets ──> read those not adopted, write what is queued ──> sleeping
                 └── now and then ──> read also those whose adopter is late: the client must not take a member that
                                      answers for dead because a handler does not return
"""

import errno
import itertools
import os
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sized
from typing import Any, cast

from hazelcast.protocol.client_message import Frame, InboundMessage, OutboundMessage
from hazelcast.reactor import AsyncoreConnection, AsyncoreReactor, asyncore

from tenure.scheduler.grid.hazelcast.outgoing import Bytes, Queue, Queued, put_back, take
from tenure.scheduler.grid.hazelcast.steady import steady_s

__all__ = ["Reader", "Serials", "quicken"]

TOGETHER = 16
"""So many requests of one pass are sent before its end."""
_FLUSHED_BYTES = 2**20
"""So much the adopter sends at a time, where the network takes it; the reactor sends the rest."""
_SLEEP_MS_MAX = 100
"""The reactor sleeps until its next timer is due, and no longer than this. By itself it would wake a hundred times a
second, and each time take Python's lock from the thread that has something to do."""
_LATE_S = 1.0
"""An adopted connection that was not read for so long is looked at by the reactor,"""
_LOOK_EVERY_S = 0.25
"""so often."""
_HEADER = struct.Struct("<iH")
"""A frame's length, itself included, and its flags."""
_FINAL = 1 << 13


def quicken(reactor: AsyncoreReactor) -> None:
    """To be called before the reactor starts."""
    its_loop = cast(Any, reactor._loop)
    wake, add_timer = its_loop.wake_loop, its_loop.add_timer
    loop = _Loop(reactor.map, its_loop._timers, its_loop._new_timers)
    its_loop.run_loop = loop.run

    def add_timer_and_wake(delay: float, callback: Any) -> Any:
        timer = add_timer(delay, callback)
        # Not without need: a connection in the making adds one, too, before it can be looked at.
        if loop.sleeping and timer.end < loop.until_s:
            wake()
        return timer

    its_loop.add_timer = add_timer_and_wake

    def connection_factory(*args: Any) -> AsyncoreConnection:
        return _Connection(loop, wake, reactor, *args)

    reactor.connection_factory = connection_factory  # type: ignore[method-assign]


class _Loop:
    """One turn of the reactor, with a set of sockets that is kept from turn to turn."""

    def __init__(self, map: dict[int, Any], timers: list[tuple[float, Any]], new_timers: Sized) -> None:
        self.sleeping = False
        """Set before the queues are looked at, so that whoever fills one later sees that a wake-up is needed."""
        self.until_s = 0.0
        """It sleeps until then."""
        self._map, self._timers, self._new_timers = map, timers, new_timers
        self._poll = select.poll()
        self._flags: dict[int, int] = {}
        self._look_at_s = 0.0

    def run(self) -> None:
        self.sleeping = True
        self._refresh()
        pause_ms = self._pause_ms()
        self.until_s = steady_s() + pause_ms / 1000
        ready = self._poll.poll(pause_ms)
        self.sleeping = False
        for fd, flags in ready:
            if (dispatcher := self._map.get(fd)) is not None:
                asyncore.readwrite(dispatcher, flags)
        if (now_s := steady_s()) >= self._look_at_s:
            self._look_at_s = now_s + _LOOK_EVERY_S
            self._read_late(now_s - _LATE_S)

    def _pause_ms(self) -> float:
        if self._new_timers:
            return 0  # to be sorted in first
        if not self._timers:
            return _SLEEP_MS_MAX
        return min(max(0, (self._timers[0][0] - steady_s()) * 1000 + 1), _SLEEP_MS_MAX)

    def _read_late(self, before_s: float) -> None:
        for connection in list(self._map.values()):
            if isinstance(connection, _Connection) and connection.adopted and connection.last_read_time < before_s:
                asyncore.readwrite(connection, select.POLLIN)

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
    """Requests may be written by the thread that makes them, and answers be read by the thread that waits for them."""

    def __init__(self, loop: _Loop, wake: Any, *args: Any) -> None:
        self._loop, self._wake = loop, wake
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self.adopted = False
        self._adopter: int | None = None
        self._fill: Callable[[_Connection], None] | None = None
        try:
            super().__init__(*args)  # type: ignore[no-untyped-call]
        except OSError as error:
            # The reactor may have been quicker, and have closed the socket: then it knows why.
            if error.errno == errno.EBADF and (why := getattr(self, "close_reason", None)):
                raise OSError(why) from None
            raise
        self._reader = Reader(self._builder)  # type: ignore[assignment]

    def adopt(self, fill: Callable[["_Connection"], None]) -> int:
        """From now on the caller reads it, by `receive`, and flushes it when it has told him by `fill` that something
        is queued. Returns a descriptor to wait on, and to close in the end.

        Raises `OSError` where it is closed already.
        """
        descriptor = os.dup(cast(Any, self.socket).fileno())
        self._fill, self._adopter = fill, threading.get_ident()
        self.adopted = True
        return descriptor

    def disown(self) -> None:
        """The reactor reads and writes it again."""
        self.adopted, self._adopter = False, None
        self._wake()

    def receive(self) -> bool:
        """Take what has come. False: it is for the reactor to see what became of this connection."""
        if self._reading.acquire(blocking=False):
            try:
                data: bytes = cast(Any, self.socket).recv(self.receive_buffer_size)
                if not data:
                    return False
                self.last_read_time = steady_s()  # type: ignore[assignment]  # the client begins with 0
                self._reactor.bytes_received += len(data)
                self._reader.read(data)
                self._reader.process()
            except BlockingIOError:
                pass
            except OSError:
                return False
            except Exception:  # noqa: BLE001  # as the reactor does: whatever came there, nothing more can be made of it
                self.handle_error()  # type: ignore[no-untyped-call]
                return False
            finally:
                self._reading.release()
        return True

    # What the reactor calls.

    def readable(self) -> bool:
        return not self.adopted and bool(super().readable())  # type: ignore[no-untyped-call]

    def handle_read(self) -> None:
        if self._reading.acquire(blocking=False):
            try:
                super().handle_read()  # type: ignore[no-untyped-call]
            finally:
                self._reading.release()

    def close(self) -> None:
        self._write_queue: Queue = deque()  # nobody will send it, and who remembers this connection need not keep it
        self.del_channel()  # first: the reactor would log hundreds of times that what is shut down here is at its end
        # Whoever waits on a descriptor of his own is woken; that the socket is closed he would not notice.
        try:
            cast(Any, self.socket).shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass  # not connected (any more)
        super().close()

    def handle_write(self) -> None:
        with self._writing:
            queue = self._write_queue
            if not (taken := take(queue, self._forget)):
                return
            try:
                sent: int = self.send(taken)
            except OSError as error:
                self.close_connection(None, error)  # type: ignore[no-untyped-call]
                return
            self.sent_protocol_bytes = True
            self._has_sent(sent)
            if sent < len(taken):
                put_back(queue, taken, sent)

    # What makes a request.

    def send_message(self, message: OutboundMessage) -> bool:
        """As the client's own. It is queued as what it is: who made it may give it up before it is sent."""
        if not self.live:
            return False
        self._write(message)
        return True

    def _write(self, queued: Queued) -> None:
        queue = self._write_queue
        queue.append(queued)
        if threading.get_ident() == self._adopter:
            if len(queue) >= TOGETHER:
                self.flush()
            elif self._fill is not None:
                self._fill(self)
        elif self._loop.sleeping:
            self._wake()

    def flush(self) -> None:
        """Send what is queued; in the adopter's thread."""
        queue = self._write_queue
        if queue and self._writing.acquire(blocking=False):  # else the reactor writes, and looks again before it sleeps
            try:
                self._flush(queue)
            finally:
                self._writing.release()
        if queue and self._loop.sleeping:
            self._wake()

    def _flush(self, queue: Queue) -> None:
        left = _FLUSHED_BYTES
        while queue and left > 0:
            taken = take(queue, self._forget)
            sent = self._send(taken)
            left -= sent
            if sent < len(taken):
                put_back(queue, taken, sent)
                return

    def _forget(self, message: OutboundMessage) -> None:
        self._connection_manager._invocation_service._pending.pop(message.get_correlation_id(), None)

    def _send(self, buf: Bytes) -> int:
        try:
            sent: int = cast(Any, self.socket).send(buf)
        except (OSError, AttributeError):
            return 0  # full, or broken: the reactor will find out, and knows what to do
        self._has_sent(sent)
        return sent

    def _has_sent(self, sent: int) -> None:
        self.last_write_time = steady_s()  # type: ignore[assignment]  # the client begins with 0
        self._reactor.bytes_sent += sent


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
                if size < _HEADER.size:
                    raise ValueError(f"a frame of {size} bytes: whatever listens there, it is no member")
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

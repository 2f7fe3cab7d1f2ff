"""What waits to be sent on one connection: taken some at a time, without what nobody waits for any more.

A member that is frozen, or far away, takes nothing for seconds, and tens of megabytes may wait for it. All of them
taken together for each try would cost more than everything else that is done meanwhile. And a call that is tried again
after its deadline must not wait behind its own first try.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias, cast

from hazelcast.protocol.client_message import REQUEST_HEADER_SIZE, OutboundMessage

__all__ = ["Queue", "Queued", "give_up", "put_back", "take"]

TAKEN_BYTES = 2**18
"""So much is taken together, or one message if that is longer: as much as a socket takes at once."""

Bytes: TypeAlias = bytes | bytearray | memoryview
Queued: TypeAlias = Bytes | OutboundMessage
Queue: TypeAlias = "deque[Queued]"


class _GivenUp(bytearray):
    """What is left of a message: its header, by which the client knows it."""


def give_up(message: OutboundMessage) -> None:
    """Nobody waits for its answer any more. What is not being sent yet is not sent, and its bytes are let go of."""
    message.buf = _GivenUp(message.buf[:REQUEST_HEADER_SIZE])


def take(queue: Queue, forget: Callable[[OutboundMessage], object]) -> Bytes:
    """The next bytes to be sent; none if there is nothing to send. One thread at a time. What is given up goes to
    `forget`: no answer will ever come to it."""
    parts: list[Bytes] = []
    size = 0
    while queue and size < TAKEN_BYTES:
        queued = queue.popleft()
        part = queued.buf if isinstance(queued, OutboundMessage) else queued
        if part.__class__ is _GivenUp:
            forget(cast(OutboundMessage, queued))
            continue
        parts.append(part)
        size += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def put_back(queue: Queue, taken: Bytes, sent: int) -> None:
    """The network took only so much of it. What has begun is sent to its end."""
    queue.appendleft(memoryview(taken)[sent:])

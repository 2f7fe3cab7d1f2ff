"""What was on its way at the cut, made part of the jobs' mailboxes. Pure.

In the order in which it was taken: what one sender sent to one job stays in order. A topic's message becomes one for
each of its subscribers, as the partition would have made it; questions are dropped, as who asked is gone.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec import Raw, msgpack

from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.keys import is_partition_sender, sending_partition, slot_key, split_slot_key
from tenure.scheduler.salvage import salvaged, why_odd
from tenure.scheduler.snapshots.form import Part
from tenure.scheduler.wire import Batch, DeadLetter, Envelope, Kind, decode

__all__ = ["Delivered", "deliver", "on_the_way"]

TOPIC_MARK = b"\x00t"


class Delivered(NamedTuple):
    """What became of the stragglers of one partition."""

    mail: list[Envelope]
    """For jobs, in order: behind what is in their mailboxes."""
    sent: list[Envelope]
    """What the partition would have sent for its topics: behind all that was on its way to its jobs."""
    undecodable: list[DeadLetter]


def on_the_way(part: Part) -> dict[int, list[int]]:
    """sender -> the numbers of its slots."""
    found: dict[int, list[int]] = {}
    for key, _ in part.stragglers:
        parts = split_slot_key(key)
        if parts is not None and is_partition_sender(parts[0]):
            found.setdefault(sending_partition(parts[0]), []).append(parts[2])
    return found


def deliver(
    stragglers: Iterable[tuple[bytes, bytes]],
    subscribers: dict[str, dict[str, None]],
    jobs_of_type: Callable[[str], list[str]],
    at_ms: int,
    origin: str = "",
) -> Delivered:
    """Do what the partition would have done. `subscribers` changes, as subscriptions may be on their way too. `origin`:
    the cluster that they were on their way in."""
    found = Delivered([], [], [])
    for key, value in stragglers:
        odd: dict[int, str] = {}
        try:
            batch = decode(value, Batch)
        except (Undecodable, UnreadableFormat) as error:
            read = salvaged(value)
            if read is None:
                letter = Envelope(f"slot {key.hex()}", Raw(msgpack.encode(value)), slot=key)
                found.undecodable.append(DeadLetter(0, letter, type(error).__name__, str(error), at_ms))
                continue
            batch, odd = read
        for index, envelope in enumerate(batch.envelopes):
            envelope.slot, envelope.index, envelope.reply, envelope.origin = key, index, 0, origin
            if why := odd.get(index) or why_odd(envelope):
                if envelope.kind in (Kind.STATE, Kind.COMMAND):
                    continue
                if envelope.kind != Kind.MESSAGE:
                    envelope.to, envelope.kind = f"message {index} of slot {key.hex()}", Kind.MESSAGE
                found.undecodable.append(DeadLetter(0, envelope, "Undecodable", why, at_ms))
            else:
                _deliver(envelope, found, subscribers, jobs_of_type)
    return found


def _deliver(
    envelope: Envelope,
    found: Delivered,
    subscribers: dict[str, dict[str, None]],
    jobs_of_type: Callable[[str], list[str]],
) -> None:
    kind = envelope.kind
    if kind == Kind.MESSAGE:
        found.mail.append(envelope)
    elif kind == Kind.TYPE:
        found.mail.extend(_copy(envelope, id, envelope.slot, "*") for id in jobs_of_type(envelope.to))
    elif kind == Kind.TOPIC:
        slot = _of_topic(envelope.slot)
        found.sent.extend(_copy(envelope, id, slot, envelope.to) for id in subscribers.get(envelope.to, ()))
    elif kind == Kind.SUBSCRIBE:
        _subscribe(envelope, subscribers)


def _of_topic(slot: bytes) -> bytes:
    """It would come in a slot of its own, of a sender of its own; so does its turn have an id of its own."""
    sender, lane, n = split_slot_key(slot) or (b"", 0, 0)
    return slot_key(TOPIC_MARK + hashlib.blake2b(sender, digest_size=6).digest(), lane, n)


def _copy(envelope: Envelope, to: str, slot: bytes, topic: str) -> Envelope:
    copy = Envelope(to, envelope.body, Kind.MESSAGE, envelope.id, 0, envelope.source, slot, envelope.index, topic=topic)
    copy.origin = envelope.origin
    return copy


def _subscribe(envelope: Envelope, subscribers: dict[str, dict[str, None]]) -> None:
    jobs = subscribers.setdefault(envelope.to, {})
    if msgpack.decode(envelope.body) is True:
        jobs[envelope.source] = None
    else:
        jobs.pop(envelope.source, None)
    if not jobs:
        del subscribers[envelope.to]

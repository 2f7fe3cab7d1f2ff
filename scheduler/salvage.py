"""Slots that no decoder takes as a whole: what can be read of them, message by message. Pure.

A message that is nested too deep, or holds what nobody can decode, would take with it all others that its client had
sent in the same slot: messages of other callers, which were acknowledged. MessagePack says of each value where it ends,
so all others are found, however deep one is nested. Nothing here is recursive.
"""

from typing import Any

import msgspec
from msgspec import Raw

from tenure.scheduler.bodies import DEPTH_MAX, is_too_deep, sizes
from tenure.scheduler.formats import FIRST
from tenure.scheduler.wire import Batch, Envelope

__all__ = ["salvaged", "start_of", "why_odd"]

_ENVELOPE = Envelope.__struct_fields__
_BATCH = Batch.__struct_fields__
_BODY = _ENVELOPE.index("body")
_encode = msgspec.msgpack.Encoder().encode
_decode_envelope = msgspec.msgpack.Decoder(Envelope).decode
_decode = msgspec.msgpack.Decoder().decode


def salvaged(value: bytes) -> tuple[Batch, dict[int, str]] | None:
    """The batch, and why some of its messages can't be read, by their places: these have their very bytes as their
    bodies. None: it is no batch at all."""
    try:
        fields = _fields(value)
        envelopes, odd = [], dict[int, str]()
        for index, stored in enumerate(_parts(fields[0])):
            try:
                envelopes.append(_decode_envelope(stored))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                envelopes.append(_odd(stored))
                odd[index] = str(error)
        return Batch(envelopes, *map(_decode, fields[1 : len(_BATCH)])), odd
    except (ValueError, IndexError, TypeError, msgspec.DecodeError):
        return None


def why_odd(envelope: Envelope) -> str:
    """Why nobody could read this message for certain, whose very bytes are its body then; empty: anybody can."""
    if len(envelope.body) <= DEPTH_MAX or not is_too_deep(envelope.body):
        return ""
    envelope.body = Raw(_encode(bytes(envelope.body)))
    return f"nested deeper than {DEPTH_MAX} lists and maps"


def start_of(value: bytes) -> dict[str, Any] | None:
    """All that a batch says besides its messages. None: it is no batch at all."""
    try:
        return dict(zip(_BATCH[1:], map(_decode, _fields(value)[1:]), strict=False))
    except (ValueError, IndexError, msgspec.DecodeError):
        return None


def _fields(value: bytes) -> list[bytes]:
    if value[:1] != bytes((FIRST,)):
        raise ValueError("not of the first format")
    return _parts(value[2:])


def _parts(stored: bytes) -> list[bytes]:
    """The elements of an array. Raises `ValueError` if it is none."""
    parts = []
    for start, end in sizes(stored):
        parts.append(stored[start:end])
    return parts


def _odd(stored: bytes) -> Envelope:
    """As much as is known of a message whose body nobody can read."""
    found: dict[str, Any] = {}
    for name, part in zip(_ENVELOPE, _parts(stored), strict=False):
        if name != "body":
            found[name] = msgspec.msgpack.decode(part)
    envelope: Envelope = msgspec.convert({**found, "body": None}, type=_Loose, strict=True).made()
    envelope.body = Raw(_encode(_parts(stored)[_BODY]))
    return envelope


class _Loose(msgspec.Struct):
    to: str
    body: None = None
    kind: int = 0
    id: str = ""
    reply: int = 0
    source: str = ""

    def made(self) -> Envelope:
        return Envelope(self.to, kind=self.kind, id=self.id, reply=self.reply, source=self.source)

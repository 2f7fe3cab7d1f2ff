"""Formats: how stored values become bytes. Several versions of Tenure on one cluster write the one it declares.

Every stored value begins with the number of its format. A version reads all formats that there were before it; each
node's heartbeat says which. The cluster's marker declares one, which all writers use, clients included; it is raised
by `tenure upgrade finalize`, and only when every living node reads the new one.

What versions learn of each other by (the marker, heartbeats, the assignment, watermarks) stays in the first format
for good. Within a format, fields are only added whose loss does no harm: an older version that writes the value
again leaves them out.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from tenure.scheduler.errors import Mistake, UnreadableFormat

__all__ = ["FIRST", "MARK", "Format", "Formats", "add_format", "format_of", "known_formats", "stamp"]

FIRST = 1
UNAUTHENTICATED = 0
MARK = 0x80
"""Added to the number of a value whose format has fields that older versions leave out, where that would do harm: they
refuse the value as one of a format that they don't know, and its partition goes to a node that is newer. It is there
for what is rare and soon over, like a message to very many subscribers that is half sent."""


class Format(NamedTuple):
    """One way to write values."""

    number: int
    """1 to 127: the first byte of every value."""
    encode: Callable[[object], bytes]
    decode: Callable[[memoryview, type[Any]], Any]
    """Raises what msgspec raises where the bytes are no such value."""


_encoder = msgspec.msgpack.Encoder()
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def _decode(body: memoryview, type: type[Any]) -> Any:
    decoder = _decoders.get(type)
    if decoder is None:
        decoder = _decoders[type] = msgspec.msgpack.Decoder(type)
    return decoder.decode(body)


_known: dict[int, Format] = {FIRST: Format(FIRST, _encoder.encode, _decode)}


def add_format(format: Format) -> None:
    """Let this process read and write one more. Its number must be free: numbers mean the same for ever."""
    if not FIRST < format.number < MARK or format.number in _known:
        raise Mistake(f"format {format.number} can't be added: numbers from 2 to 127 that are not taken can")
    _known[format.number] = format


def known_formats() -> tuple[int, ...]:
    """The formats that this process reads."""
    return tuple(sorted(_known))


def format_of(number: int) -> Format:
    """The format of this number; raises `UnreadableFormat`."""
    try:
        return _known[number]
    except KeyError:
        known = ", ".join(map(str, known_formats()))
        raise UnreadableFormat(
            f"stored with format {number}; this version reads {known}: start nodes of a newer one", format=number
        ) from None


def stamp(number: int) -> bytes:
    """What every value begins with."""
    return bytes((number, UNAUTHENTICATED))


class Formats:
    """What one process knows of the formats of its cluster: the one to write, and who reads which."""

    def __init__(self, reads: Iterable[int] | None = None) -> None:
        """`reads`: what this process reads; by default all that it can. (Several versions can share a process, in
        tests.)"""
        self._reads = None if reads is None else frozenset(reads)
        self.declared, self._stamp = FIRST, stamp(FIRST)
        self.readers: Mapping[int, list[str]] = {}
        """format -> the nodes that read it, as far as this process has seen"""

    @property
    def reads(self) -> tuple[int, ...]:
        """What this process reads."""
        return known_formats() if self._reads is None else tuple(sorted(self._reads))

    def declare(self, number: int) -> None:
        """This is what the cluster writes. Raises `UnreadableFormat` if it can't be written, or read, here."""
        if number == self.declared:
            return
        if number not in self.reads:
            raise UnreadableFormat(
                f"this cluster writes format {number}, and this version reads "
                f"{', '.join(map(str, self.reads))}: {self.who_reads(number)}",
                format=number,
            )
        self.declared, self._stamp = number, stamp(number)

    def encode(self, value: object) -> bytes:
        """The bytes to store."""
        return self._stamp + _known[self.declared].encode(value)

    def is_another_ones(self, number: int) -> bool:
        """Does some node of this cluster read it, and this process not?"""
        return number not in self.reads and number in self.readers

    def who_reads(self, number: int) -> str:
        """For people."""
        nodes = self.readers.get(number, [])
        if not nodes:
            return "no node that is there can; start one of a newer version"
        return f"{', '.join(nodes)} can"

"""What a message may be made of, so that whoever reads it can: it decodes, and is not nested too deep.

Bodies lie within slots, records and images, which are decoded as a whole: one that no decoder takes would take with it
what lies beside it. So it is refused where it is sent; and where an older version sent it, it is taken out before it is
written anywhere else.
"""

import sys
from typing import Any

import msgspec
from msgspec import Raw

from tenure.scheduler.errors import TooLarge, WrongType
from tenure.scheduler.wire import UNSTORABLE

__all__ = ["DEPTH_MAX", "SCALARS", "check", "encoded", "is_too_deep", "sizes"]

DEPTH_MAX = 200
"""So deep may lists and maps be nested. Decoders give up near a thousand, sooner on a deep stack."""
_PROBE_DEPTH, _PROBED_LIMIT = 600, 1200
_PROBE = b"\x91" * _PROBE_DEPTH
_CONTAINERS = bytes((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))
_OTHERS = bytes(set(range(256)).difference(_CONTAINERS))
SCALARS = frozenset((int, str, float, bool, type(None), bytes))
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_decode_raw = msgspec.msgpack.Decoder(Raw).decode


def encoded(message: Any, what: str, bytes_max: int, *, checked: bool = True) -> bytes:
    """The bytes of a message. Raises `WrongType` or `TooLarge`, which begin with `what`. With `checked`, also of one
    that nobody could read."""
    try:
        body = _encode(message)
    except UNSTORABLE as error:
        raise WrongType(f"{what} can't be stored: {error}") from error
    if len(body) > bytes_max:
        raise TooLarge(f"{what} has {len(body)} bytes; the limit is {bytes_max}")
    if checked and type(message) not in SCALARS:
        check(body, what)
    return body


def check(body: bytes, what: str) -> None:
    """Raises `WrongType` if nobody could read it."""
    try:
        _decode(body)
    except RecursionError:
        raise WrongType(f"{what} is nested deeper than {DEPTH_MAX} lists and maps") from None
    except Exception as error:  # hashes, dates: whatever its parts raise
        raise WrongType(f"{what} could not be read by anybody: {error}") from error
    if len(body) > DEPTH_MAX and is_too_deep(body):
        raise WrongType(f"{what} is nested deeper than {DEPTH_MAX} lists and maps")


def is_too_deep(body: "bytes | Raw") -> bool:
    """Is it nested deeper than a decoder takes everywhere? Never, if not deeper than `DEPTH_MAX`; always, if twice as
    deep; between them, as it is cheapest to say."""
    if len(body) <= DEPTH_MAX:
        return False
    whole = bytes(body)
    # Each container has a byte that begins it, which may also be part of a number or a text.
    if len(whole.translate(None, _OTHERS)) <= DEPTH_MAX:
        return False
    if sys.getrecursionlimit() <= _PROBED_LIMIT:
        try:
            _decode_raw(_PROBE + whole)
            return False
        except (RecursionError, msgspec.DecodeError):
            pass  # it is deep, or we are
    try:
        return _measure(whole, 0, DEPTH_MAX)[1] > DEPTH_MAX
    except ValueError:
        return True  # cut off


def sizes(stored: bytes) -> list[tuple[int, int]]:
    """Where each element of this array begins and ends. Raises `ValueError` if it is none."""
    head, count, is_array = _head(stored, 0)
    if not is_array:
        raise ValueError("no array")
    found, at = [], head
    for _ in range(count):
        end, _ = _measure(stored, at)
        found.append((at, end))
        at = end
    return found


def _measure(stored: bytes, start: int, depth_max: int | None = None) -> tuple[int, int]:
    """Where the value that begins here ends, and how deep it is nested. Stops where it is deeper than `depth_max`."""
    at, depth, left = start, 0, [1]
    while left:
        if not left[-1]:
            left.pop()
            continue
        left[-1] -= 1
        at, count, _ = _head(stored, at)
        if count >= 0:
            left.append(count)
            depth = max(depth, len(left) - 1)
            if depth_max is not None and depth > depth_max:
                break
    return at, depth


def _head(stored: bytes, at: int) -> tuple[int, int, bool]:
    """Of a container: where its first value begins, how many it has, and whether it is an array. Of anything else:
    where it ends, and -1."""
    if at >= len(stored):
        raise ValueError("cut off")
    mark = stored[at]
    if mark < 0x80 or mark >= 0xE0:
        return at + 1, -1, False
    if mark < 0x90:
        return at + 1, 2 * (mark & 15), False
    if mark < 0xA0:
        return at + 1, mark & 15, True
    if mark < 0xC0:
        return _within(stored, at + 1 + (mark & 31)), -1, False
    width, more, kind = _MARKS[mark - 0xC0]
    if not width:
        return _within(stored, at + 1 + more), -1, False
    first = _within(stored, at + 1 + width)
    n = int.from_bytes(stored[at + 1 : first], "big")
    if kind:
        return first, n * kind, kind == 1
    return _within(stored, first + more + n), -1, False


def _within(stored: bytes, at: int) -> int:
    if at > len(stored):
        raise ValueError("cut off")
    return at


_MARKS = (
    *((0, 0, 0),) * 4,  # nil, (never used), false, true
    (1, 0, 0), (2, 0, 0), (4, 0, 0),  # bytes
    (1, 1, 0), (2, 1, 0), (4, 1, 0),  # extensions
    (0, 4, 0), (0, 8, 0),  # floats
    (0, 1, 0), (0, 2, 0), (0, 4, 0), (0, 8, 0),  # unsigned
    (0, 1, 0), (0, 2, 0), (0, 4, 0), (0, 8, 0),  # signed
    (0, 2, 0), (0, 3, 0), (0, 5, 0), (0, 9, 0), (0, 17, 0),  # small extensions
    (1, 0, 0), (2, 0, 0), (4, 0, 0),  # texts
    (2, 0, 1), (4, 0, 1),  # arrays
    (2, 0, 2), (4, 0, 2),  # maps
)  # fmt: skip
"""From 0xc0: (the width of a length, how much comes besides, what it contains: 1 values, 2 pairs of them)."""

"""A second format, as a newer version would have one: the first one's bytes, compressed."""

import zlib
from typing import Any

import msgspec

from tenure.scheduler.formats import FIRST, Format, format_of

__all__ = ["ZIPPED"]


def _encode(value: object) -> bytes:
    return zlib.compress(format_of(FIRST).encode(value), 1)


def _decode(body: memoryview, type: type[Any]) -> Any:
    try:
        plain = zlib.decompress(body)
    except zlib.error as error:
        raise msgspec.DecodeError(str(error)) from error
    return format_of(FIRST).decode(memoryview(plain), type)


ZIPPED = Format(2, _encode, _decode)

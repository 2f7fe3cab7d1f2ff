"""A second format, as a newer version would have one: the first one's bytes, the other way round."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tenure.scheduler import formats
from tenure.scheduler.formats import FIRST, Format, format_of

__all__ = ["NEWER", "newer_format"]


def _encode(value: object) -> bytes:
    return format_of(FIRST).encode(value)[::-1]


def _decode(body: memoryview, type: type[Any]) -> Any:
    return format_of(FIRST).decode(memoryview(bytes(body)[::-1]), type)


NEWER = Format(2, _encode, _decode)


@contextmanager
def newer_format() -> Iterator[None]:
    """While open, this process has it."""
    with patch.dict(formats._known, {NEWER.number: NEWER}):
        yield

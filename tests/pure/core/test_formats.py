"""Formats of stored values: numbers mean the same for ever, and nobody writes what it can't read."""

import pytest

from tenure.scheduler.errors import Mistake, UnreadableFormat
from tenure.scheduler.formats import FIRST, MARK, Format, Formats, add_format, format_of, known_formats, stamp


@pytest.mark.parametrize("number", [-1, 0, FIRST, MARK, MARK + 1, 200])
def test_numbers_that_are_taken_or_can_not_be_are_refused(number: int) -> None:
    with pytest.raises(Mistake, match=f"format {number} can't be added"):
        add_format(Format(number, bytes, lambda body, type: None))
    assert known_formats() == (FIRST,)


@pytest.mark.parametrize("number", [FIRST + 1, MARK - 1])
def test_others_can_be_added(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.scheduler.formats._known", {FIRST: format_of(FIRST)})
    add_format(Format(number, lambda value: b"new", lambda body, type: None))
    assert known_formats() == (FIRST, number)
    formats = Formats()
    assert formats.reads == (FIRST, number)
    assert formats.encode(7) == stamp(FIRST) + b"\x07"
    formats.declare(number)
    assert formats.encode(7) == stamp(number) + b"new"
    assert formats.declared == number


def test_what_is_not_known_says_who_can_read_it() -> None:
    formats = Formats([FIRST])
    with pytest.raises(UnreadableFormat, match="start nodes of a newer one"):
        format_of(9)
    with pytest.raises(UnreadableFormat, match="writes format 9, and this version reads 1: no node that is there can"):
        formats.declare(9)
    assert not formats.is_another_ones(9)
    formats.readers = {9: ["n1", "n2"], FIRST: ["n1"]}
    assert formats.is_another_ones(9)
    assert not formats.is_another_ones(FIRST)
    with pytest.raises(UnreadableFormat, match="n1, n2 can"):
        formats.declare(9)
    formats.declare(FIRST)
    assert formats.declared == FIRST


def test_values_begin_with_their_format_and_are_read_as_what_is_asked_for() -> None:
    assert stamp(FIRST) == b"\x01\x00"
    decode = format_of(FIRST).decode
    for _ in range(2):
        assert (decode(memoryview(b"\x07"), int), decode(memoryview(b"\xa1x"), str)) == (7, "x")

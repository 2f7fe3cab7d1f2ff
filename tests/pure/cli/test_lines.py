"""Bulk publishing: each wrong line is named, and what it says is exact."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tenure.cli import lines as cli_lines
from tenure.cli.lines import CHUNK_LINES, LineReader
from tenure.cli.publish import Line, Outcome, parse_line


def test_a_line_says_where_it_goes() -> None:
    assert parse_line(7, '{"to": "a", "message": {"n": 1}}\n', None) == Line(7, "a", {"n": 1}, "")
    assert parse_line(7, '{"to": "a", "message": null, "id": "o-1"}', None) == Line(7, "a", None, "o-1")


def test_with_an_id_given_the_whole_line_is_the_message() -> None:
    assert parse_line(1, '{"to": "b"}', "a") == Line(1, "a", {"to": "b"}, "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "no JSON"),
        ("[1]", "not of the form"),
        ('{"to": "a"}', "not of the form"),
        ('{"message": 1}', "not of the form"),
        ('{"to": 5, "message": 1}', "to is 5"),
        ('{"to": "", "message": 1}', "to is ''"),
        ('{"to": "%s", "message": 1}' % ("é" * 251), "1 to 500 bytes of UTF-8"),
        (r'{"to": "\ud800", "message": 1}', "1 to 500 bytes of UTF-8"),
        ("[" * 200_000, "no JSON"),
        ('{"to": "a", "message": 1, "id": 7}', "id is 7"),
        ('{"to": "a", "message": 1, "id": "%s"}' % ("x" * 501), "at most 500 bytes of UTF-8"),
        ('{"to": "a", "message": NaN}', "NaN is not JSON"),
        ('{"to": "a", "message": 1, "when": 7}', "when: a line has only"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_line(1, text, None)


async def all_of(reader: LineReader) -> list[list[tuple[int, bytes]]]:
    chunks = []
    while chunk := await reader.chunk():
        chunks.append(chunk)
    return chunks


def test_input_of_any_length_goes_in_bounded_pieces(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("x\n" * (2 * CHUNK_LINES + 1))
    with (tmp_path / "lines").open() as source:
        chunks = trio.run(all_of, LineReader(source.fileno()))
    assert [len(chunk) for chunk in chunks] == [CHUNK_LINES, CHUNK_LINES, 1]
    assert [number for chunk in chunks for number, _ in chunk] == list(range(1, 2 * CHUNK_LINES + 2))


def test_long_lines_go_in_pieces_of_bounded_size(tmp_path: Path) -> None:
    """Five thousand messages of a mebibyte each are more than a machine may have memory for."""
    (tmp_path / "lines").write_bytes((b"x" * 999_999 + b"\n") * 40)
    with (tmp_path / "lines").open() as source:
        chunks = trio.run(all_of, LineReader(source.fileno()))
    assert max(sum(len(line) for _, line in chunk) for chunk in chunks) < 12 * 2**20
    assert [number for chunk in chunks for number, _ in chunk] == list(range(1, 41))


def test_of_a_line_without_an_end_only_so_much_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_lines, "LINE_BYTES_MAX", 2_000_000)
    (tmp_path / "lines").write_bytes(b"x" * 5_000_000 + b"\nshort\n" + b"y" * 4_000_000)
    with (tmp_path / "lines").open() as source:
        chunks = trio.run(all_of, LineReader(source.fileno()))
    assert [(number, len(line)) for chunk in chunks for number, line in chunk] == [
        (1, 2_000_001),
        (2, 5),
        (3, 2_000_001),
    ]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        try:
            os.close(end)
        except OSError:
            pass  # the test has closed it


async def test_lines_are_given_out_while_more_may_come(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a log that is followed."""
    monkeypatch.setattr(cli_lines, "GATHER_S", 0.0)
    reading, writing = pipe
    reader = LineReader(reading)
    os.write(writing, b"one\n\ntw")
    with trio.fail_after(10):
        assert await reader.chunk() == [(1, b"one"), (2, b"")]
        os.write(writing, b"o\r\nthree")
        assert await reader.chunk() == [(3, b"two\r")]
        os.close(writing)
        assert await reader.chunk() == [(4, b"three")]
        assert await reader.chunk() == []


async def test_reading_can_be_broken_off(pipe: tuple[int, int]) -> None:
    """Others go on meanwhile, and an interruption is heeded."""
    with trio.move_on_after(0.01) as scope:
        await LineReader(pipe[0]).chunk()
    assert scope.cancelled_caught
    os.write(pipe[1], b"so that the thread ends\n")


def test_rejected_lines_that_share_a_reason_are_told_together() -> None:
    outcome = Outcome()
    outcome.reject([1], "no JSON")
    outcome.reject([3, 4, 5], "not known")
    outcome.reject([7], "not known")
    outcome.reject([8], "odd: \ud800")
    assert list(outcome.runs()) == [
        ("line 1", "no JSON"),
        ("lines 3 to 5", "not known"),
        ("line 7", "not known"),
        ("line 8", "odd: \\ud800"),
    ]

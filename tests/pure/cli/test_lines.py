"""Bulk publishing: each wrong line is named, and what it says is exact."""

import pytest

from tenure.cli.publish import CHUNK_LINES, Line, _chunks, parse_line


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
        ('{"to": "a", "message": 1, "id": 7}', "id is 7"),
        ('{"to": "a", "message": 1, "when": 7}', "when: a line has only"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_line(1, text, None)


def test_input_of_any_length_goes_in_bounded_pieces() -> None:
    lines = [(n, "x") for n in range(2 * CHUNK_LINES + 1)]
    assert [len(chunk) for chunk in _chunks(lines)] == [CHUNK_LINES, CHUNK_LINES, 1]

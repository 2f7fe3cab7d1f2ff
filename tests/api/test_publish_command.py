"""`tenure publish` of many lines: what can't be sent is named, the others are sent, and what became of them is told."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.cli import lines as cli_lines
from tenure.cli.ends import Exit
from tenure.scheduler.client import GridClient
from tests.api.jobs import Counter
from tests.api.shell import Shell

GOOD = b'{"to": "a", "message": {"n": 1}}'


Given = Callable[..., None]


@pytest.fixture
def given(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Given]:
    """Lines on standard input, for a job that there is."""

    async def before(client: tenure.Client) -> None:
        await client.schedule(Counter, id="a")

    shell.before = before
    path = tmp_path / "lines"
    path.touch()
    with path.open() as source:
        monkeypatch.setattr("sys.stdin", source)

        def give(*lines: bytes) -> None:
            path.write_bytes(b"\n".join(lines))

        yield give


@pytest.mark.parametrize("topic", [(), ("--topic",)])
def test_a_bad_line_takes_no_other_with_it(shell: Shell, given: Given, topic: tuple[str, ...]) -> None:
    bad = {
        2: json.dumps({"to": "é" * 300, "message": 1}).encode(),
        4: b'{"to": "a", "message": "\xff"}',
        5: rb'{"to": "a", "message": "\ud800"}',
        6: rb'{"to": "a", "message": 1, "id": "\ud800"}',
        7: rb'{"to": "a", "message": 1, "\ud800": 1}',
        8: b'{"to": "a", "message": 123456789012345678901234567890}',
        9: b'{"to": "a", "message": 1, "id": "%s"}' % (b"x" * 501),
    }
    given(*(bad.get(number, GOOD) for number in range(1, 11)), b"")
    (told,) = shell("publish", *topic, "--json", code=Exit.FAILED)
    assert told["stored"] == 3
    assert {rejected["line"] for rejected in told["rejected"]} == bad.keys()
    why = {rejected["line"]: rejected["why"] for rejected in told["rejected"]}
    assert "500 bytes" in why[2]
    assert why[4] == "not UTF-8, at byte 25"


def test_a_bad_address_on_the_command_line_is_told_before_anything_is_read(shell: Shell, given: Given) -> None:
    given(b"1")
    shell("publish", "é" * 300, code=Exit.USAGE)
    assert "500 bytes" in shell.err
    assert "stored" not in shell.err


def test_what_is_known_is_told_also_if_it_is_broken_off(
    shell: Shell, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_lines, "CHUNK_LINES", 3)
    publish_many, calls = GridClient.publish_many, 0

    async def fails_the_second_time(self: GridClient, messages: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise tenure.NotDone("the cluster has gone")
        await publish_many(self, messages, **options)

    monkeypatch.setattr(GridClient, "publish_many", fails_the_second_time)
    given(GOOD, b"nonsense", *[GOOD] * 7)
    shell("publish", code=Exit.UNREACHABLE)
    told = shell.err.splitlines()
    assert told[0].startswith("line 2: no JSON")
    assert told[1:3] == [
        "lines 4 to 6: not known to be stored: it was broken off here",
        "2 messages stored, 4 lines rejected.",
    ]
    assert "the cluster has gone" in told[3]


def test_it_says_what_became_of_a_message(shell: Shell, given: Given) -> None:
    given()
    shell("publish", "a", '{"n": 1}')
    assert shell.err == "Stored for job 'a'.\n"
    assert shell("publish", "a", '{"n": 1}', "--json") == [{"stored": 1, "rejected": [], "unknown": []}]
    shell("publish", "b", "1")
    assert "Stored, but there is no job 'b': what it was sent becomes a dead letter" in shell.err
    shell("publish", "news", "1", "--topic")
    assert shell.err == "Stored for the subscribers of topic 'news'.\n"
    given(GOOD, b'{"to": "b", "message": 1}')
    shell("publish")
    assert "2 messages stored, 0 lines rejected.\nThere is no job 'b': what it was sent" in shell.err


def test_strict_refuses_what_nobody_would_get(shell: Shell, given: Given) -> None:
    given()
    shell("publish", "b", "1", "--strict", code=Exit.FAILED)
    assert "there is no job 'b': nothing was stored of 1 messages. See `tenure jobs`" in shell.err
    shell("publish", "a", '{"n": 1}', "--strict")
    given(GOOD, b'{"to": "b", "message": 1}', GOOD)
    (told,) = shell("publish", "--strict", "--json", code=Exit.FAILED)
    assert told == {"stored": 2, "rejected": [{"line": 2, "why": "there is no job 'b'"}], "unknown": []}
    shell("publish", "news", "1", "--strict", "--topic", code=Exit.USAGE)


def test_a_line_that_is_longer_than_any_message_is_rejected_by_itself(shell: Shell, given: Given) -> None:
    given(GOOD, b'"' + b"x" * cli_lines.LINE_BYTES_MAX + b'"', GOOD)
    shell("publish", code=Exit.FAILED)
    assert "line 2: longer than 16,777,216 bytes" in shell.err
    assert "2 messages stored, 1 lines rejected." in shell.err

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
    assert told[3] == "Nothing that follows line 6 was sent."
    assert "the cluster has gone" in told[4]


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
    assert told == {"stored": 2, "rejected": [{"line": 2, "why": "there is no job 'b'"}], "unknown": [], "read": 3}
    shell("publish", "news", "1", "--strict", "--topic", code=Exit.USAGE)


def test_a_line_that_is_longer_than_any_message_is_rejected_by_itself(shell: Shell, given: Given) -> None:
    given(GOOD, b'"' + b"x" * cli_lines.LINE_BYTES_MAX + b'"', GOOD)
    shell("publish", code=Exit.FAILED)
    assert "line 2: longer than 16,777,216 bytes" in shell.err
    assert "2 messages stored, 1 lines rejected." in shell.err


def test_a_cluster_that_takes_nothing_is_not_tried_with_every_line(
    shell: Shell, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five thousand lines after the other, each time for as long as an answer may take, and without a word."""
    monkeypatch.setattr(cli_lines, "CHUNK_LINES", 2)
    lines_sent = 0
    publish_many = GridClient.publish_many

    async def dies_later(self: GridClient, messages: Any, **options: Any) -> None:
        nonlocal lines_sent
        lines_sent += len(messages)
        if lines_sent > 4:
            raise tenure.Backlogged("none of 2 messages is stored after 30 s", list(messages))
        await publish_many(self, messages, **options)

    monkeypatch.setattr(GridClient, "publish_many", dies_later)
    given(*[GOOD] * 50)
    shell("publish", code=Exit.FAILED)
    assert lines_sent == 6
    assert shell.err.splitlines()[:3] == [
        "lines 5 to 6: not known to be stored: the cluster does not keep up",
        "4 messages stored, 2 lines rejected.",
        "Nothing that follows line 6 was sent.",
    ]
    assert "none of 2 messages is stored after 30 s" in shell.err


def test_a_job_that_takes_no_more_keeps_no_lines_from_others(
    shell: Shell, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_lines, "CHUNK_LINES", 2)
    publish_many = GridClient.publish_many

    async def full(self: GridClient, messages: Any, **options: Any) -> None:
        if messages[0][0] == "b":
            raise tenure.Backlogged("held back", list(messages), {"b": "its mailbox is full"})
        await publish_many(self, messages, **options)

    monkeypatch.setattr(GridClient, "publish_many", full)
    given(*[GOOD.replace(b'"a"', b'"b"')] * 2, *[GOOD] * 2)
    shell("publish", code=Exit.FAILED)
    assert "lines 1 to 2: not known to be stored: job 'b' takes no more for now: its mailbox is full" in shell.err
    assert "2 messages stored, 2 lines rejected." in shell.err

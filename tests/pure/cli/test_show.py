"""Tables."""

import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from tenure.cli.show import moment, print_described, print_table, when
from tenure.scheduler.timers import due_at_ms


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    ids = ["shop:key:7", ":star:", "[bold]a[/bold]", "a" * 150]
    print_table(("id", "state"), [(id, "running") for id in ids])
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown if "running" in line] == ids


def test_many_rows_take_no_time_and_stay_on_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(f"job-{n}", "running", "ValueError: first\nsecond\nthird" if n == 7 else "") for n in range(20_000)]
    began_s = time.process_time()  # others share the machine
    print_table(("id", "state", "error"), rows)
    assert time.process_time() - began_s < 1
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 20_002
    assert shown[9].split(maxsplit=2) == ["job-7", "running", "ValueError: first …"]


def test_wide_letters_line_up(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("id", "n"), [("日本", 1), ("abcd", 2)])
    assert capsys.readouterr().out.splitlines()[2:] == ["日本   1", "abcd   2"]


def test_what_would_move_the_cursor_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("id", "error"), [("a\x1b[2Jb", "\x07no"), ("plain", "one\ntwo")])
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["a\\x1b[2Jb", "\\x07no"],
        ["plain", "one", "…"],
    ]
    print_described({"failure": {"error": "\x1b[31mno", "traceback": "one\n  \x1b]0;two\x07"}}, NOW_MS)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  error: \\x1b[31mno",
        "  traceback:",
        "    one",
        "      \\x1b]0;two\\x07",
    ]


def test_many_rows_cost_little_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Whole columns at a time: not a dozen calls for each of 140,000 cells."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    rows = [(f"order-{n}", "counter", "running", "", "", "node-1", "") for n in range(1_000)]
    sys.setprofile(count)
    try:
        print_table(("id", "type", "state", "waiting", "next timer", "node", "error"), rows)
    finally:
        sys.setprofile(None)
    assert calls < 20_000


NOW_MS = 1_795_154_400_000


def test_never_is_a_time_as_well() -> None:
    """`datetime.max` rounds to a year that no `datetime` has."""
    never_ms = due_at_ms(datetime.max.replace(tzinfo=UTC))
    assert when(never_ms, NOW_MS).startswith(("10000-01-01 ", "9999-12-31 "))
    assert moment(never_ms).startswith(("10000-01-01 ", "9999-12-31 "))
    assert when(2**63, NOW_MS).endswith(" days)")


def test_a_moment_has_its_zone() -> None:
    assert datetime.fromisoformat(moment(NOW_MS)).timestamp() * 1000 == NOW_MS
    assert moment(0) == ""


def test_times_are_the_clock_s_here_with_how_far_they_are() -> None:
    here = datetime.fromtimestamp(NOW_MS / 1000)
    assert when(0, NOW_MS) == ""
    assert when(NOW_MS + 5_000, NOW_MS) in (f"{here + timedelta(seconds=5):%H:%M:%S} (in 5 s)",)
    assert when(NOW_MS - 240_000, NOW_MS).endswith(" (4 min ago)")
    assert when(NOW_MS + 7_200_000, NOW_MS).endswith(" (in 2 h)")
    later = here + timedelta(days=3)
    assert when(NOW_MS + 3 * 86_400_000, NOW_MS) == f"{later:%Y-%m-%d %H:%M:%S} (in 3 days)"


def test_what_is_known_of_something_is_told_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        "id": "a",
        "running": False,
        "stuck": "",
        "failure": {"error": "ValueError: no", "traceback": "one\n  two\n", "at_ms": NOW_MS - 5_000, "retry_ms": 0},
        "topics": ["news"],
        "activities": [{"name": "load", "pid": 1}],
        "timer": None,
        "state": {},
    }
    print_described(found, NOW_MS)
    at = datetime.fromtimestamp(NOW_MS / 1000 - 5)
    assert capsys.readouterr().out.splitlines() == [
        "id: a",
        "running: no",
        "failure:",
        "  error: ValueError: no",
        "  traceback:",
        "    one",
        "      two",
        f"  at: {at:%H:%M:%S} (5 s ago)",
        'topics: ["news"]',
        "activities:",
        "  name: load",
        "  pid: 1",
        "state: {}",
    ]

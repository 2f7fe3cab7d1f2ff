"""The demo's ledger is made from what was acknowledged and from the jobs' own states, and hides nothing."""

import time
from typing import Any

import pytest

from tenure.demo.application import Account
from tenure.demo.ledger import make_ledger


def account(*numbers: int, sender: str = "s") -> dict[str, Any]:
    """The state of a job after these messages."""
    import msgspec

    job = msgspec.convert({}, Account)
    for n in numbers:
        job.on_message(None, {"sender": sender, "n": n, "at_ms": time.time_ns() // 1_000_000 - 50})  # type: ignore[arg-type]
    built: dict[str, Any] = msgspec.to_builtins(job)
    return built


@pytest.mark.parametrize(
    ("numbers", "sent", "expected"),
    [
        ((1, 2, 3), 3, (3, 0, 0, 0)),
        ((1, 2), 3, (2, 1, 0, 0)),  # the last is lost
        ((2, 3), 3, (2, 1, 0, 0)),  # the first
        ((1, 3), 3, (2, 1, 0, 0)),  # one in between
        ((), 3, (0, 3, 0, 0)),
        ((1, 2, 2, 3), 3, (3, 0, 1, 0)),
        ((1, 1, 1), 1, (1, 0, 2, 0)),
        ((1, 3, 2), 3, (3, 0, 0, 1)),  # all there, in the wrong order
        ((1, 3, 2, 2), 3, (3, 0, 1, 1)),
        ((1, 3, 3), 3, (2, 1, 1, 0)),  # one lost, another doubled: the sums are equal, the ledger is not fooled
    ],
)
def test_what_was_lost_and_what_was_doubled(
    numbers: tuple[int, ...], sent: int, expected: tuple[int, int, int, int]
) -> None:
    ledger = make_ledger({("a", "s"): sent}, {"a": account(*numbers)})
    assert (ledger.applied, ledger.lost, ledger.doubled, ledger.disordered) == expected
    assert ledger.is_exact is (expected == (sent, 0, 0, 0))


def test_a_job_without_a_state_has_lost_all() -> None:
    ledger = make_ledger({("a", "s"): 2, ("b", "s"): 3}, {"a": account(1, 2), "b": {}})
    assert ledger.line() == {
        "sent": 5,
        "applied": 2,
        "lost": 3,
        "doubled": 0,
        "longest_pause_ms": ledger.longest_pause_ms,
    }
    assert ledger.longest_pause_ms >= 50


def test_what_nobody_sent_is_no_success() -> None:
    assert not make_ledger({("a", "s"): 1}, {"a": account(1, 2)}).is_exact

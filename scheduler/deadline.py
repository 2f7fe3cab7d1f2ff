"""Deadlines that say in words what was not done in time."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from tenure.scheduler.errors import Mistake, NotDone

__all__ = ["checked_limit", "deadline"]


def checked_limit(limit_s: float) -> float:
    """Raises `Mistake` for what is no time to wait."""
    if not limit_s >= 0:
        raise Mistake(f"a time to wait is a number of seconds from 0 on, not {limit_s!r}")
    return limit_s


@contextmanager
def deadline(limit_s: float, what: str) -> Iterator[None]:
    """Raises `NotDone` if its body takes longer."""
    with trio.move_on_after(checked_limit(limit_s)) as scope:
        yield
    if scope.cancelled_caught:
        raise NotDone(f"{what} was not known to be done within {limit_s} s; it may still happen")

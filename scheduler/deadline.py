"""Deadlines that say in words what was not done in time."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from tenure.scheduler.errors import NotDone

__all__ = ["deadline"]


@contextmanager
def deadline(limit_s: float, what: str) -> Iterator[None]:
    """Raises `NotDone` if its body takes longer."""
    with trio.move_on_after(limit_s) as scope:
        yield
    if scope.cancelled_caught:
        raise NotDone(f"{what} was not known to be done within {limit_s} s; it may still happen")

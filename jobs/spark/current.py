"""Who a function on Spark reports to."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tenure.jobs.reporting import Reporter

__all__ = ["current_reporter", "reporting"]

_current: ContextVar[Reporter] = ContextVar("tenure-reporter")
_all: list[Reporter] = []
"""Of a warm driver there may be several at a time, each in a thread of its own."""


def current_reporter() -> Reporter:
    """The reporter of the Spark job that the caller works for. Raises `LookupError` elsewhere, and in threads that a
    function has started itself where they may work for one of several jobs (of a warm driver): hand it on to them."""
    if (found := _current.get(None)) is not None:
        return found
    if not _all:
        raise LookupError("this process does not work for a Spark job")
    if len(_all) > 1:
        raise LookupError("this process works for several Spark jobs: call this in the function's own thread")
    return _all[0]


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Make it the current one."""
    before = _current.set(reporter)
    _all.append(reporter)
    try:
        yield
    finally:
        _all.remove(reporter)
        _current.reset(before)

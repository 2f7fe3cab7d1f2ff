"""Who a function on Spark reports to."""

from collections.abc import Iterator
from contextlib import contextmanager

from tenure.jobs.reporting import Reporter

__all__ = ["current_reporter", "reporting"]

_current: list[Reporter] = []


def current_reporter() -> Reporter:
    """The reporter of the Spark job that this process works for. Raises `LookupError` elsewhere."""
    if not _current:
        raise LookupError("this process does not work for a Spark job")
    return _current[-1]


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Make it the current one."""
    _current.append(reporter)
    try:
        yield
    finally:
        _current.pop()

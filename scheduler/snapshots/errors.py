"""What snapshots and restoring refuse or report."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from tenure.scheduler.errors import Final, Mistake, TryAgain

__all__ = [
    "BadLocation",
    "NotRestorable",
    "SnapshotDamaged",
    "SnapshotFailed",
    "SnapshotUnderWay",
    "StoreFailed",
    "UnknownSnapshot",
    "one_of_them",
]


class StoreFailed(TryAgain):
    """The place where snapshots are kept can't be written or read now; the text says why."""


class SnapshotFailed(TryAgain):
    """No snapshot was taken. Earlier ones are as they were; try again."""


class SnapshotUnderWay(TryAgain):
    """Another snapshot of this cluster is being taken; wait for its end."""


class SnapshotDamaged(Final):
    """A snapshot is not as it was written: something is missing, or its checksum is wrong."""


class UnknownSnapshot(Final):
    """There is no such snapshot at this place."""


class NotRestorable(Mistake):
    """This snapshot can't be restored here, or not without being told to; nothing was changed."""


class BadLocation(Mistake):
    """This is no place for snapshots, or a package is missing to reach it."""


@contextmanager
def one_of_them() -> Iterator[None]:
    """Several things are done at once in here: the first error that comes out of it comes alone."""
    try:
        yield
    except BaseExceptionGroup as group:
        _, errors = group.split(trio.Cancelled)
        if errors is None:
            raise
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None

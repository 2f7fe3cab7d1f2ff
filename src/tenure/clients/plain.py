"""That there are nurseries inside is no business of the caller's: a lone error comes out as itself."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["leaves", "one_error", "plain"]


def leaves(error: BaseException) -> list[BaseException]:
    """The errors in a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def plain(error: BaseException) -> BaseException:
    """The only error in a group, or the group."""
    inside = leaves(error)
    return inside[0] if len(inside) == 1 else error


@contextmanager
def one_error() -> Iterator[None]:
    """Of the errors of a nursery in this block one comes out, as itself: an interruption, or else the first."""
    try:
        yield
    except BaseExceptionGroup as group:
        inside = leaves(group)
        raise next((leaf for leaf in inside if not isinstance(leaf, Exception)), inside[0]) from None

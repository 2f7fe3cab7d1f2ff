"""That there are nurseries inside is no business of the caller's: a lone error comes out as itself."""

__all__ = ["leaves", "plain"]


def leaves(error: BaseException) -> list[BaseException]:
    """The errors in a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def plain(error: BaseException) -> BaseException:
    """The only error in a group, or the group."""
    inside = leaves(error)
    return inside[0] if len(inside) == 1 else error

"""The nearest right word for a wrong one."""

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(word: str, known: Iterable[str]) -> str:
    """How an error's sentence goes on: the near word, else all there are."""
    known = list(known)
    if near := difflib.get_close_matches(word, known, n=1, cutoff=0.5):
        return f"; did you mean {near[0]!r}?"
    return f"; there are {', '.join(known)}"

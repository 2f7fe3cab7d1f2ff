"""The engine's defences, each with a way to switch it off. A mutant replaces a method for a while; the engine
itself has no switch for any of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["DEFENCES", "without"]

Mutant = Callable[[ExitStack], None]
MUTANTS: dict[str, Mutant] = {}
DEFENCES = tuple(MUTANTS)


@contextmanager
def without(defence: str | None) -> Iterator[None]:
    """While open, the engine lacks this defence."""
    with ExitStack() as stack:
        if defence is not None:
            MUTANTS[defence](stack)
        yield

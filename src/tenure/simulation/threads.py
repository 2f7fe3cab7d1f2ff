"""Threads of blocking turns, in virtual time: what runs in one takes a while, and goes on when nobody waits for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import trio

__all__ = ["virtual_threads"]

TAKES_S = (0.0, 0.05, 0.3, 1.0)


@contextmanager
def virtual_threads(seed: int) -> Iterator[None]:
    """While open, `trio.to_thread.run_sync` makes no thread: real ones know nothing of virtual time."""
    dice = Random(f"{seed} threads")

    async def run_sync(
        function: Callable[..., Any],
        *arguments: Any,
        abandon_on_cancel: bool = False,
        limiter: trio.CapacityLimiter | None = None,
        **_: Any,
    ) -> Any:
        borrower = object()
        if limiter is not None:
            await limiter.acquire_on_behalf_of(borrower)
        try:
            await trio.sleep(dice.choice(TAKES_S))
            result = function(*arguments)
            await trio.sleep(dice.choice(TAKES_S))
            return result
        finally:
            if limiter is not None:
                limiter.release_on_behalf_of(borrower)

    with patch.object(trio.to_thread, "run_sync", run_sync):
        yield

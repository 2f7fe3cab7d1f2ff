"""Threads of blocking turns, in virtual time: what runs in one takes a while, and goes on when nobody waits for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

import trio

from tenure.scheduler.snapshots import aside

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
        begun = False
        try:
            await trio.sleep(dice.choice(TAKES_S))
            begun = True
            result = function(*arguments)
            await trio.sleep(dice.choice(TAKES_S))
            return result
        except trio.Cancelled:
            if not begun:
                call = partial(copy_context().run, function, *arguments)
                trio.lowlevel.spawn_system_task(_go_on, call, dice.choice(TAKES_S))
            raise
        finally:
            if limiter is not None:
                limiter.release_on_behalf_of(borrower)

    async def _go_on(call: Callable[[], Any], after_s: float) -> None:
        await trio.sleep(after_s)
        with suppress(Exception):
            call()

    with patch.object(trio.to_thread, "run_sync", run_sync), patch.object(aside, "is_time_virtual", lambda: False):
        yield

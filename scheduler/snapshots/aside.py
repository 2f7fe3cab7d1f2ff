"""Work in a thread, beside the loop; in virtual time in its place, as that would go on without the thread."""

import sys
from collections.abc import Callable
from typing import TypeVar

import trio

__all__ = ["aside", "is_time_virtual"]

T = TypeVar("T")


async def aside(call: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None, abandon: bool = True) -> T:
    """`abandon`: when this is cancelled, the thread goes on by itself, to whatever end."""
    if not is_time_virtual():
        return await trio.to_thread.run_sync(call, limiter=limiter, abandon_on_cancel=abandon)
    await trio.lowlevel.checkpoint()
    return call()


def is_time_virtual() -> bool:
    """A `MockClock` jumps to the next deadline while a thread works: hours may go by until a file is written."""
    testing = sys.modules.get("trio.testing")
    return testing is not None and isinstance(trio.lowlevel.current_clock(), testing.MockClock)

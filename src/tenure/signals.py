"""Signals that tell a process to stop, and, when it is told again, to stop at once."""

from collections.abc import AsyncIterator

import trio

__all__ = ["SAME_SIGNAL_S", "told_to_stop"]

SAME_SIGNAL_S = 0.3
"""What comes so soon after the first signal is the same one: terminals and supervisors tell whole process groups."""


async def told_to_stop(received: AsyncIterator[int]) -> AsyncIterator[tuple[int, bool]]:
    """Each signal, and whether the process is told again by it."""
    first_s: float | None = None
    async for number in received:
        if first_s is None:
            first_s = trio.current_time()
            yield number, False
        elif trio.current_time() - first_s > SAME_SIGNAL_S:
            yield number, True

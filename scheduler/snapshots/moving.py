"""Values in the grid that one process moves on, step by step, and that others take over when it is silent."""

from collections.abc import Awaitable, Callable, Sequence

import trio

from tenure.scheduler.grid.port import Grid, GridError, Map

__all__ = ["advance", "move"]


async def move(grid: Grid, key: bytes, olds: Sequence[bytes], new: bytes, pause_s: float) -> bool:
    """To `new` by compare-and-set, tried until its outcome is known. False: it is another's by now.

    `olds`: what it was last known to be, and then what it may have become, in order: a move that was cancelled may take
    effect all the same.
    """
    while True:
        try:
            for was in (*olds, new):  # an earlier try may have got through
                if await grid.replace_if_same(Map.NODES, 0, key, was, new):
                    return True
            return False
        except GridError:
            await trio.sleep(pause_s)


async def advance(
    grid: Grid,
    partition: int,
    key: bytes,
    new: bytes,
    is_before: Callable[[bytes], bool],
    pause: Callable[[int], Awaitable[None]],
) -> bool:
    """Beside a partition's head, put this in the place of what `is_before` it: by a conditional write, so that one that
    arrives late changes nothing. False: what is there is none of that, and stays."""
    attempt = 0
    while True:
        try:
            there = await grid.get(Map.HEADS, partition, key)
            if there is not None and there != new and not is_before(there):
                return False
            if there is None:
                is_done = await grid.put_if_absent(Map.HEADS, partition, key, new) is None
            else:
                is_done = await grid.replace_if_same(Map.HEADS, partition, key, there, new)
            if is_done:
                return True
        except GridError:
            pass
        attempt += 1  # what was read may be out of date
        await pause(attempt)

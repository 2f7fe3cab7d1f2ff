"""Values in the grid that one process moves on, step by step, and that others take over when it is silent."""

from collections.abc import Sequence

import trio

from tenure.scheduler.grid.port import Grid, GridError, Map

__all__ = ["move"]


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

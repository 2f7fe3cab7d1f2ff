"""Values in the grid that one process moves on, step by step, and that others take over when it is silent."""

import trio

from tenure.scheduler.grid.port import Grid, GridError, Map

__all__ = ["move"]


async def move(grid: Grid, key: bytes, old: bytes, new: bytes, pause_s: float) -> bool:
    """From `old` to `new` by compare-and-set, tried until its outcome is known. False: it is another's by now."""
    while True:
        try:
            for was in (old, new):  # an earlier try may have got through
                if await grid.replace_if_same(Map.NODES, 0, key, was, new):
                    return True
            return False
        except GridError:
            await trio.sleep(pause_s)

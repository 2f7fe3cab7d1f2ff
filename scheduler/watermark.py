"""A partition's announced watermark: client lanes born at or below it are dead, or may be at any moment.

It only grows, it is announced before it counts (see `forgetting`), and clients begin their lanes above it. Both
ends know it by conditional writes alone: a read may say that there is none, and a lane that begins too low is
one whose messages nobody takes.
"""

from tenure.scheduler.errors import Undecodable, UnreadableFormat
from tenure.scheduler.grid.port import Grid, Map
from tenure.scheduler.keys import WATERMARK
from tenure.scheduler.wire import decode, encode

__all__ = ["announce", "announced"]


async def announced(grid: Grid, partition: int) -> int | None:
    """What is announced. None: the answer is out of date, ask again. Raises `GridError`."""
    return await announce(grid, partition, 0)


async def announce(grid: Grid, partition: int, watermark: int) -> int | None:
    """Let the watermark be this at least; returns what it is then. None: ask again. Raises `GridError`."""
    there = await grid.put_if_absent(Map.HEADS, partition, WATERMARK, encode(watermark))
    if there is None:
        return watermark
    try:
        highest = max(watermark, decode(there, int))
    except (Undecodable, UnreadableFormat):
        if not watermark:
            raise
        highest = watermark  # the owner's: what was announced before, and is not journaled, has killed no lane
    # "Taken" may be an old answer. A conditional write is not: it holds only while this is what is there.
    if await grid.replace_if_same(Map.HEADS, partition, WATERMARK, there, encode(highest)):
        return highest
    return None

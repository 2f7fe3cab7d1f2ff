"""Says in time that a member's heap gets full: one that is full ends, and those that take over its data may follow.

Members don't tell clients how full they are, but the system tells how much memory they have taken. Their Java lets the
heap grow as long as less than two fifths of it are free after it has thrown away what nobody needs; so one that has
grown to its end is more than half full of data.
"""

import os
from collections.abc import Callable
from pathlib import Path

import trio

from tenure.members.member import Member

__all__ = ["BESIDE_HEAP_MIB", "taken_mib", "watch_heap"]

LOOK_EVERY_S = 10.0
BESIDE_HEAP_MIB = 48
"""What its Java takes at least besides a heap that is grown: 60 were seen, with one client."""


async def watch_heap(
    member: Member, say: Callable[[str], None], taken: Callable[[int], int | None] | None = None
) -> None:
    """Say it once; then this returns. `taken` tells how many MiB a process has taken."""
    most, look = member.settings.heap_max_mib, taken or taken_mib
    while (look(member.pid) or 0) < most + BESIDE_HEAP_MIB:  # noqa: ASYNC110  # a process that grows sets no event
        await trio.sleep(LOOK_EVERY_S)
    host, port = member.address
    say(
        f"the heap of the member at {host}:{port} has grown to all that it may take ({most} MiB), and more than half "
        "of it is data. When it is full the member ends, and those that take over its data may follow: give members "
        "more (`tenure member --memory`), one after the other, or keep less in them"
    )


def taken_mib(pid: int) -> int | None:
    """None where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 2**20
    except (OSError, ValueError, IndexError):
        return None

"""When a process began: with its number, which is used again, that says which one it is.

In ticks since the machine began. By the clock, which is how psutil tells it, each step of the clock would make another
process of it.
"""

import os
from pathlib import Path

__all__ = ["born"]


def born(pid: int) -> int | None:
    """When a process began, in ticks since the machine did; None if it has ended. Raises `OSError` if none can tell."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        # Where /proc hides other users' processes (hidepid), it says the same of those that are there.
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        raise
    fields = status.rpartition(b")")[2].split()  # its name stands before that, and may hold anything
    if fields[0] in (b"Z", b"X"):
        return None  # ended; its parent has not looked yet
    return int(fields[19])

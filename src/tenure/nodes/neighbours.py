"""Which nodes of this machine are gone. Their end is seen at once; of others only that their heart stands still."""

import os
from functools import cache
from pathlib import Path

from tenure.jobs.born import born as _born
from tenure.scheduler.assignment import NodeInfo

__all__ = ["Neighbours"]


class Neighbours:
    """What this process knows of those beside it, where the system tells (Linux)."""

    def __init__(self) -> None:
        self.host = _processes_known_here()
        self.born = (_born(os.getpid()) or 0) if self.host else 0

    def is_gone(self, node: NodeInfo) -> bool:
        """Has its process certainly ended? Of nodes elsewhere nothing is certain."""
        if not node.pid or not node.born or not self.host or node.host != self.host:
            return False
        try:
            return _born(node.pid) != node.born
        except (OSError, OverflowError):
            return False  # not told: it may be another user's, or we have too many files open to look; or be no number


@cache
def _processes_known_here() -> str:
    """The same for processes that see each other's numbers: of one boot of one machine, in one namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""

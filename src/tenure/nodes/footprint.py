"""How much memory this process has taken, and whether that is more than it may take."""

import os
from pathlib import Path

from tenure.members.settings import memory_limit_mib

__all__ = ["Footprint"]

SHARE = 0.9
"""Of what the system allows: beyond it the process ends soon, and without a word."""
UNLIMITED_MIB = 2**40
_STATM, _CGROUP, _CGROUPS = Path("/proc/self/statm"), Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_VIRTUAL, _RESIDENT = 0, 1
"""The columns of `_STATM`."""


class Footprint:
    """What one process has taken, of what it may take."""

    def __init__(self, memory_max_mib: float | None, statm: Path | None = None) -> None:
        """With None nine tenths of what the system allows count; with 0 it may take any. `statm`: another process's,
        under the same limits."""
        self._statm = statm
        if memory_max_mib is not None:
            self._limits = [(_RESIDENT, memory_max_mib)] if memory_max_mib else []
        else:
            self._limits = [(column, SHARE * limit) for column, limit in _limits()]

    def share(self) -> float:
        """What it has taken, as a share of what it may; 0 where that is any."""
        if not self._limits:
            return 0.0
        taken = _taken_mib(self._statm or _STATM)
        return max(taken[column] / limit for column, limit in self._limits)

    def excess_mib(self) -> float:
        """So many MiB it has taken, where they are more than it may take; 0 where not."""
        if not self._limits:
            return 0.0
        taken = _taken_mib(self._statm or _STATM)
        return max((taken[column] for column, limit in self._limits if taken[column] > limit), default=0.0)


def _taken_mib(statm: Path) -> tuple[float, float]:
    try:
        pages = statm.read_text().split()
        page_mib = os.sysconf("SC_PAGE_SIZE") / 2**20
        return int(pages[_VIRTUAL]) * page_mib, int(pages[_RESIDENT]) * page_mib
    except (OSError, ValueError, IndexError):  # no Linux
        return 0.0, 0.0


def _limits() -> list[tuple[int, float]]:
    found = [mib for mib in (memory_limit_mib(), *_limits_of_groups()) if mib is not None and mib < UNLIMITED_MIB]
    return [*([(_RESIDENT, float(min(found)))] if found else ()), *_limit_of_addresses()]


def _limits_of_groups() -> list[float]:
    """Those of the process's own control group, and of all around it (a service of systemd has one)."""
    try:
        own = next(line[3:] for line in _CGROUP.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return []
    groups, found = Path(own.lstrip("/")), []
    for group in (groups, *groups.parents):
        try:
            found.append(int((_CGROUPS / group / "memory.max").read_text()) / 2**20)
        except (OSError, ValueError):  # not there, or "max"
            continue
    return found


def _limit_of_addresses() -> list[tuple[int, float]]:
    try:
        import resource
    except ImportError:
        return []
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return [] if limit == resource.RLIM_INFINITY else [(_VIRTUAL, limit / 2**20)]
